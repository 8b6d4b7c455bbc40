"""Which record goes where, as arithmetic: stable permutations, groups of blocks, epochs dealt to readers.

No I/O, numpy only: the same key gives the same order forever. `permutations` draws, `groups` serves the offline
pass, `neighbours` keeps equal keys apart, `dealing` serves the loader, `simulate` has the order of every method,
for comparisons, and `noise` says how much of an order SGD feels. A new way of ordering records goes here.
"""

from corgi2.order.dealing import (
    Deal,
    Rest,
    Rules,
    Share,
    World,
    buffer_order,
    deal,
    deal_shards,
    epoch_rest,
    replay,
    turns_of,
    window_of,
)
from corgi2.order.groups import descent, make_groups
from corgi2.order.neighbours import keep_apart
from corgi2.order.noise import (
    Dealt,
    Felt,
    Pools,
    Step,
    Windows,
    epoch_of_pools,
    pools_after,
    pools_of_blocks,
    pools_of_counts,
    pools_of_groups,
    pools_of_ranges,
)
from corgi2.order.permutations import GROUPS, HOLDOUTS, MIXTURES, RESAMPLES, SAMPLES, Indices, draws, permutation
from corgi2.order.rounds import cut_rounds, rounds_of
from corgi2.order.simulate import Layout, Order, h_of_labels, random_access, sequential, sliding_window

__all__ = [
    "GROUPS",
    "HOLDOUTS",
    "MIXTURES",
    "RESAMPLES",
    "SAMPLES",
    "Deal",
    "Dealt",
    "Felt",
    "Indices",
    "Layout",
    "Order",
    "Pools",
    "Rest",
    "Rules",
    "Share",
    "Step",
    "Windows",
    "World",
    "buffer_order",
    "cut_rounds",
    "deal",
    "deal_shards",
    "descent",
    "draws",
    "epoch_of_pools",
    "epoch_rest",
    "h_of_labels",
    "keep_apart",
    "make_groups",
    "permutation",
    "pools_after",
    "pools_of_blocks",
    "pools_of_counts",
    "pools_of_groups",
    "pools_of_ranges",
    "random_access",
    "replay",
    "rounds_of",
    "sequential",
    "sliding_window",
    "turns_of",
    "window_of",
]
