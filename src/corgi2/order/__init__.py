"""Which record goes where, as arithmetic: permutations that last, groups of blocks, epochs dealt to readers.

No I/O, numpy only: the same key gives the same order for ever. `permutations` draws, `groups` is for the offline
pass, `neighbours` keeps equal keys apart, `dealing` is for the loader, and `simulate` has the order of every
method, for comparisons. A new way of ordering records goes here.
"""

from corgi2.order.dealing import (
    Deal,
    Rules,
    Share,
    World,
    buffer_order,
    deal,
    deal_shards,
    epoch_rest,
    replay,
    window_of,
)
from corgi2.order.groups import cut_evenly, cut_groups, descent, draw_groups
from corgi2.order.neighbours import keep_apart
from corgi2.order.permutations import GROUPS, MIXTURES, RESAMPLES, SAMPLES, Indices, draws, permutation
from corgi2.order.simulate import Layout, Order, h_of_labels, random_access, sequential, sliding_window

__all__ = [
    "GROUPS",
    "MIXTURES",
    "RESAMPLES",
    "SAMPLES",
    "Deal",
    "Indices",
    "Layout",
    "Order",
    "Rules",
    "Share",
    "World",
    "buffer_order",
    "cut_evenly",
    "cut_groups",
    "deal",
    "deal_shards",
    "descent",
    "draw_groups",
    "draws",
    "epoch_rest",
    "h_of_labels",
    "keep_apart",
    "permutation",
    "random_access",
    "replay",
    "sequential",
    "sliding_window",
    "window_of",
]
