"""Stable permutations and draws: the same for the same key, forever. No I/O, numpy only."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

GROUPS, MIXTURES, SAMPLES, RESAMPLES, HOLDOUTS = 0, 1, 4, 5, 6

PICKS, BUFFERS, HOMES = (1 << 32) + 2, (1 << 32) + 3, (1 << 32) + 4
"""The purpose of a draw: a part of every key, so that no two draws are alike. Offline, after the number of the pass:
blocks for groups, the records of each, what is held out. When measuring: blocks, and blocks of those again. Online:
blocks for an epoch, the records of each buffer, the nodes that blocks come back to; these are larger than any number of
a pass."""

_STEP = 1 << 18


def permutation(count: int, key: Sequence[int]) -> Indices:
    """A uniform permutation of ``range(count)``, the same for the same key, forever.

    The key is a tuple such as (seed, pass, group). NumPy keeps its bit generators stable, but not what ``Generator``
    makes of them, so this sorts random words that carry their index in their lowest bits: in place, 8 bytes per index.
    Of two indices, neither comes first more often than the other by more than one in 2^32 / count.
    """
    if count >= 1 << 32:
        raise ValueError(f"a permutation must have fewer than 2^32 indices (got {count})")
    words, low = _raw(count, key), np.uint64((1 << max(1, count - 1).bit_length()) - 1)
    words &= ~low
    for start in range(0, count, _STEP):
        words[start : start + _STEP] |= np.arange(start, min(count, start + _STEP), dtype=np.uint64)
    words.sort()
    words &= low
    return words.view(np.int64)


def _raw(count: int, key: Sequence[int]) -> npt.NDArray[np.uint64]:
    if not all(0 <= part < 1 << 64 for part in key):
        raise ValueError(f"seeds and counters must lie between 0 and 2^64 (got {tuple(key)})")
    # SeedSequence confuses 0 with (0, 0), and 2^32 with (0, 1): words of one width after their number stay apart.
    words = [len(key), *(word for part in key for word in (part & 0xFFFFFFFF, part >> 32))]
    return np.random.Philox(np.random.SeedSequence(words)).random_raw(count)


def draws(count: int, bound: int, key: Sequence[int]) -> Indices:
    """Independent uniform draws from ``range(bound)``, the same for the same key, forever."""
    if not 0 < bound < 1 << 32:
        raise ValueError(f"draws must be from 1 to 2^32 - 1 values (got {bound})")
    # The upper 32 bits, scaled: no value is likelier than another by more than one in 2^32 / bound.
    return ((_raw(count, key) >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32)).astype(np.int64)
