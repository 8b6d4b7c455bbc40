"""The offline half of Corgi²: random groups of blocks are read, shuffled and written as new shards, exactly once."""

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
