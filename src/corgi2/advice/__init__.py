"""``corgi2 plan``: what each way of shuffling costs and buys, and which one to take.

`shape` and `probe` find out about the data and its store, `methods` knows every way, `prices` what requests cost, and
`recommendation` chooses: a new piece of advice goes there.
"""

from corgi2.advice.recommendation import Advice
from corgi2.advice.request import plan

__all__ = ["Advice", "plan"]
