"""Which record goes where, as arithmetic: stable permutations, groups of blocks, epochs dealt to readers.

No I/O, numpy only: the same key gives the same order forever. `permutations` has the keyed draws. For the offline pass,
`drawing` has all that one pass draws at random, `groups` and `rounds` say which blocks are mixed together, and
`neighbours` keeps equal keys apart. For the loader, `epochs` orders the blocks of an epoch, `worlds` says who reads it,
`dealing` and `nodes` share it out, and `replaying` tells what is left of it. For comparisons, `simulate` has the orders
of every method, and `noise` says how much of an order SGD feels. A new way of ordering records goes here; a new order
of the blocks of an epoch into `epochs`, and its name is a value of ``picks`` (`worlds`, `corgi2.online.choices`).
"""

from corgi2.order.dealing import Deal, deal, deal_shards
from corgi2.order.drawing import Drawing
from corgi2.order.epochs import Rest, buffer_order, epoch_rest, window_of
from corgi2.order.groups import descent
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
from corgi2.order.permutations import HOLDOUTS, RESAMPLES, SAMPLES, Indices, draws, permutation
from corgi2.order.replaying import replay
from corgi2.order.simulate import Layout, Order, h_of_labels, random_access, sequential, sliding_window
from corgi2.order.worlds import Rules, Share, World, turns_of

__all__ = [
    "HOLDOUTS",
    "RESAMPLES",
    "SAMPLES",
    "Deal",
    "Dealt",
    "Drawing",
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
    "deal",
    "deal_shards",
    "descent",
    "draws",
    "epoch_of_pools",
    "epoch_rest",
    "h_of_labels",
    "keep_apart",
    "permutation",
    "pools_after",
    "pools_of_blocks",
    "pools_of_counts",
    "pools_of_groups",
    "pools_of_ranges",
    "random_access",
    "replay",
    "sequential",
    "sliding_window",
    "turns_of",
    "window_of",
]
