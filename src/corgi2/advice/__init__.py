"""``corgi2 plan``: what each way of shuffling costs and buys, and which one to take.

`shape` and `probe` find out about the data and its store, `methods` knows every way (by the formulas of
`corgi2.theory`), `prices` what requests cost, and `recommendation` chooses and says why: a new piece of advice goes
there. `request` is the command. (The plan of a shuffle that runs is another thing: `corgi2.offline.plan`.)
"""

from corgi2.advice.recommendation import Advice
from corgi2.advice.request import plan

__all__ = ["Advice", "plan"]
