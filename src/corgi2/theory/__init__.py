"""What a shuffle buys, in closed form: pure functions, checked against enumeration and simulation.

Notation as in the paper: N blocks of b examples, m = N·b; n_off blocks in the offline buffer, n_on blocks in all online
buffers at one time (the window); h the block-wise variance parameter (the mean over blocks of
‖mean of block − mean of all‖² is h·σ²/b: b if every block is of one kind, about 1 if everything is shuffled, 0 if
every block is balanced); H = n_on·b·Var(mean of a window)/σ², the coefficient of Theorem 2's leading term.

`passes` has h of blocks after offline passes, `windows` H of what a loader holds at one time, `rounds` both for ranges
in rounds, `memory` what SGD feels over time, `paper` the paper's two theorems, `requests` what a store is asked. A new
closed form goes here; what is simulated is in `order`, what is measured in `quality`.
"""

from corgi2.theory.memory import Memory, long_run
from corgi2.theory.paper import Bound, h_with_replacement, improves, least_delay, step_size, surviving, theorem2
from corgi2.theory.passes import (
    Blocks,
    between_groups,
    h_after_pass,
    h_after_passes,
    h_dealt,
    h_full,
    h_of_parts,
    within_groups,
)
from corgi2.theory.requests import (
    Requests,
    parts,
    requests_corgi2,
    requests_corgipile,
    requests_random_access,
    requests_rounds,
    requests_shuffle_once,
)
from corgi2.theory.rounds import Rounds
from corgi2.theory.windows import (
    h_butterfly,
    largest_block,
    window_after_pass,
    window_butterfly,
    window_even,
    window_even_later,
    window_full,
    window_random,
)

__all__ = [
    "Blocks",
    "Bound",
    "Memory",
    "Requests",
    "Rounds",
    "between_groups",
    "h_after_pass",
    "h_after_passes",
    "h_butterfly",
    "h_dealt",
    "h_full",
    "h_of_parts",
    "h_with_replacement",
    "improves",
    "largest_block",
    "least_delay",
    "long_run",
    "parts",
    "requests_corgi2",
    "requests_corgipile",
    "requests_random_access",
    "requests_rounds",
    "requests_shuffle_once",
    "step_size",
    "surviving",
    "theorem2",
    "window_after_pass",
    "window_butterfly",
    "window_even",
    "window_even_later",
    "window_full",
    "window_random",
    "within_groups",
]
