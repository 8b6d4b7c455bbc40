"""``corgi2 shuffle``: random groups of blocks are read, shuffled and written as new shards, each record exactly once.

`settings` are what a person chose, `plan` what was settled (kept in the target), `passes` what each pass does, as data;
`group` makes one group, `journal` keeps its marker, `run` does it all, by one of the `engines`.
"""

from corgi2.offline.job import load_plan
from corgi2.offline.journal import CONSUMED, DISCARDED, Done, Journal, Marker, NewShard
from corgi2.offline.passes import GroupSizes, Pass, first_pass
from corgi2.offline.plan import Plan
from corgi2.offline.planning import foresee, plan_shuffle
from corgi2.offline.report import Report
from corgi2.offline.run import run_shuffle, shuffle
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
    "first_pass",
    "foresee",
    "load_plan",
    "plan_shuffle",
    "run_shuffle",
    "shuffle",
]
