"""``corgi2 plan``: what each way of shuffling costs and buys, and which one to choose.

`situation` is what a plan is made for; `shape` and `probe` find out about the data and its store, `prices` knows what
requests, traffic and machines cost. `table` makes a `methods.Method` of every way, `judge` says how well it mixes (by
`corgi2.order.noise` and the formulas of `corgi2.theory`), `command` what to run. `choice` chooses and says why: a new
piece of advice goes there. `recommendation` puts this together, `text` and `picture` show it, `request` is the command.
(The plan of a shuffle that runs is something else: `corgi2.offline.plan`.)
"""

from corgi2.advice.recommendation import Advice
from corgi2.advice.request import plan

__all__ = ["Advice", "plan"]
