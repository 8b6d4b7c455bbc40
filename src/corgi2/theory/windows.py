"""H of the windows of a loader: blocks drawn at random, or spread evenly over the groups that made them."""

import math

from corgi2.theory.passes import Blocks, between_groups, h_after_pass, within_groups, written_examples


def h_butterfly(data: Blocks, n: int, written: float | None = None, between: float | None = None) -> float:
    """h' after two passes, the second of which groups blocks of distinct groups of the first; if there are fewer than
    n groups, equally many blocks of each. The blocks between the passes have ``between`` examples; b, if None."""
    data.check(n)
    groups, middle = math.ceil(data.count / n), written_examples(data, n, between)
    fitting = max(1, int(n * data.examples / middle + 1e-9))
    again = min(fitting // groups * groups or fitting, int(data.total / middle + 1e-9))
    spread = window_even(data, data.count / groups, again, middle)
    size, new = again * middle, written_examples(data, again * middle / data.examples, written)
    within = (size - new) / (size - 1) * (1 - spread / size) if size > 1 else 0.0
    return spread * new / size + within


def window_random(data: Blocks, n_on: int) -> float:
    """H of n_on blocks drawn at random, without replacement, from blocks of parameter h."""
    data.check(n_on, "the online window")
    return data.h * (data.count - n_on) / (data.count - 1) if data.count > 1 else 0.0


def window_after_pass(data: Blocks, n_off: int, n_on: int) -> float:
    """H of n_on blocks drawn at random after an offline pass; ``data`` is the data before it."""
    return window_random(Blocks(data.count, data.examples, min(data.examples, h_after_pass(data, n_off))), n_on)


def window_even(data: Blocks, n_off: float, n_on: int, written: float | None = None) -> float:
    """H of a window spread evenly over the groups of one offline pass of n_off blocks each; ``data`` is the data before
    it, and the n_on blocks of the window have ``written`` examples each."""
    data.check(n_off)
    scale = written_examples(data, n_off, written) / data.examples
    if not 1 <= n_on <= data.count / scale + 1e-9:
        raise ValueError(
            f"the online window lies between 1 and the {data.count / scale:g} blocks there are (got {n_on})"
        )
    groups, each = data.count / n_off, n_off / scale
    a, w = between_groups(data, n_off) * scale, within_groups(data, n_off, written)
    return _evenly(a, w, groups, each, n_on)


def _evenly(between: float, within: float, groups: float, each: float, n_on: int) -> float:
    """H of n_on blocks spread over groups of ``each``, given what is left between groups and within them."""
    k = int(n_on / groups + 1e-9)
    over = n_on - k * groups
    if k == 0:
        return between * (groups - n_on) / (groups - 1) + within
    left = within * (each - k) / (each - 1) if each > 1 else 0.0
    return between * over * (groups - over) / (n_on * (groups - 1)) + left if groups > 1 else left


def window_butterfly(
    data: Blocks, n_off: float, n_on: int, written: float | None = None, between: float | None = None
) -> float:
    """The approximate H of a window spread evenly over the lineage of two butterfly passes. These mix n² blocks as well
    as one pass with a buffer of n² would, and this is its H; more blocks, if those between the passes are smaller."""
    data.check(n_off)
    again = n_off * data.examples / written_examples(data, n_off, between)
    return window_even(data, min(data.count, n_off * again), n_on, written)


def window_even_later(blocks: Blocks, groups: int, n_on: int) -> float:
    """The approximate H of blocks that were already mixed in this many groups: all of their h except 1 is assumed to
    lie between the groups."""
    return _evenly(max(0.0, blocks.h - 1), min(1.0, blocks.h), groups, blocks.count / groups, n_on)


def window_full(data: Blocks, n_on: int) -> float:
    """H of a window of a full shuffle."""
    data.check(n_on, "the online window")
    return (data.total - n_on * data.examples) / (data.total - 1) if data.total > 1 else 0.0


def largest_block(offline_bytes: float, online_bytes: float, data_bytes: float) -> float:
    """Bytes of the largest blocks for which an offline pass and even picks reach the full shuffle: n_off·n_on ≥ N."""
    if min(offline_bytes, online_bytes, data_bytes) <= 0:
        raise ValueError("buffers and data must have at least one byte")
    return min(offline_bytes, data_bytes) * min(online_bytes, data_bytes) / data_bytes
