"""``corgi2 shuffle``: random groups of blocks are read, shuffled and written as new shards, each record exactly once.

Before anything is written: `settings` (what a person chose), `outline` (the blocks to plan with), `planning` (from
these to a `job`), `plan` (what was settled; kept in the target), `passes` (what each pass does, as data), `names`
(of new shards). Then `run` does it, by one of the `engines`: a `task` is sent to whoever makes groups, `group`
makes one, with `threads`. What is kept and cleaned up: `journal` (plan, markers, sums), `skipped` (damaged shards
that were left out), `consumed` (what is deleted once its group is safe), `finishing` (index and sums),
`resume` and `discard` (what an earlier run left), `ways_back` (from damage between passes), `report`. The memory
that a shuffle may take is added up in `corgi2.budget`.
"""

from corgi2.offline.job import load_plan
from corgi2.offline.journal import CONSUMED, DISCARDED, Done, Journal, Marker, NewShard
from corgi2.offline.passes import GroupSizes, Pass, first_pass
from corgi2.offline.plan import Plan
from corgi2.offline.planning import foresee, plan_shuffle
from corgi2.offline.report import Report
from corgi2.offline.run import check_engine, run_shuffle, shuffle
from corgi2.offline.settings import Settings
from corgi2.offline.skipped import Skipped

__all__ = [
    "CONSUMED",
    "DISCARDED",
    "Done",
    "GroupSizes",
    "Journal",
    "Marker",
    "NewShard",
    "Pass",
    "Plan",
    "Report",
    "Settings",
    "Skipped",
    "check_engine",
    "first_pass",
    "foresee",
    "load_plan",
    "plan_shuffle",
    "run_shuffle",
    "shuffle",
]
