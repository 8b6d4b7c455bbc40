"""``corgi2 shuffle``: random groups of blocks are read, shuffled and written as new shards, each record exactly once.

Planning writes nothing: `settings` (what the user chose), `outline` (the blocks to plan with), `planning` (from these
to a `planned` shuffle), `places` (that it may use), `plan` (what was decided), `passes` (what each pass does, as data),
`useless` (what gains nothing), `foresight` (all passes, and their requests), `ranges` and `dealt` (parts of blocks, and
which group has them), `names` (of new shards), `holdout` (which records or shards are held out).

Running: `run` is the function that users call, `shuffle_run` runs all passes, `pass_run` one of them, with one of the
`engines`. A `task` is what these are given: groups, and where they go. `group` makes one, with a `mixer` and `threads`;
`reading` reads its blocks, `parts` are its records in memory, `publishing` writes its shards.

What is kept and cleaned up: `journal` (markers and sums), `plan_file` (the plan), `skipped` (damaged shards that were
left out), `consumed` (what is deleted once its group is safe), `new_shards` and `finishing` (index and sums), `aside`
(where held-out records go), `resume` and `discard` (what an earlier run left), `ways_back` (from damage between
passes), `side_files` (files beside shards, written anew as their format says), `report`. The memory that a shuffle may
take is added up in `corgi2.budget`.
"""

from corgi2.offline.dealt import dealt_in
from corgi2.offline.engines.choice import check_engine
from corgi2.offline.foresight import Foresight, look_ahead
from corgi2.offline.journal import CONSUMED, DISCARDED, Done, Journal, Marker, NewShard
from corgi2.offline.passes import AT_ONCE, GroupSizes, Pass, first_pass
from corgi2.offline.plan import Plan
from corgi2.offline.plan_file import load_plan
from corgi2.offline.planning import foresee, plan_shuffle
from corgi2.offline.report import Report
from corgi2.offline.run import run_shuffle, shuffle
from corgi2.offline.settings import Settings, parse_share
from corgi2.offline.skipped import Skipped
from corgi2.offline.useless import why_useless

__all__ = [
    "AT_ONCE",
    "CONSUMED",
    "DISCARDED",
    "Done",
    "Foresight",
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
    "dealt_in",
    "first_pass",
    "foresee",
    "load_plan",
    "look_ahead",
    "parse_share",
    "plan_shuffle",
    "run_shuffle",
    "shuffle",
    "why_useless",
]
