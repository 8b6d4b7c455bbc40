"""The records of buffers, in portions of any size."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from corgi2.online.buffers import Filled
from corgi2.order import Indices
from corgi2.records import SLICE_BYTES


class Taken(NamedTuple):
    """Some records: ``size`` from ``start`` on of what several share, because taking many at once is cheaper. And the
    buffer that the last of them came from, with how many of it are done then."""

    shared: Any
    start: int
    size: int
    filled: Filled
    done: int


def portions(
    buffers: Iterator[tuple[Filled, Indices, int]], size: int | None, join: Callable[[list[Any]], Any]
) -> Iterator[Taken]:
    """The records of buffers in the orders given with them, each from a place on: in portions of ``size``, of which the
    last may be short; or, without a size, of a few MB. ``join`` makes one of several that come from several buffers."""
    carried: list[Any] = []
    missing = 0
    last: tuple[Filled, int] | None = None
    for filled, order, begin in buffers:
        at, count = begin, len(order)
        each = size or _rows_of_a_slice(filled)
        if missing and at < count:
            step = min(missing, count - at)
            carried.append(filled.take(order[at : at + step]))
            at, missing = at + step, missing - step
            if not missing:
                yield Taken(join(carried), 0, each, filled, at)
                carried = []
        slab = each * max(1, _rows_of_a_slice(filled) // each)
        whole = at + ((count - at) // each * each if size else count - at)
        while at < whole:
            is_first = last is None and at == begin  # which somebody waits for
            some = order[at : min(whole, at + (each if is_first else slab))]
            shared = filled.take(some)
            for start in range(0, len(some), each):
                stop = min(len(some), start + each)
                yield Taken(shared, start, stop - start, filled, at + stop)
                filled.read_on()
            at += len(some)
        if at < count:
            carried.append(filled.take(order[at:]))
            missing = each - (count - at)
        last = (filled, count)
    if carried and last is not None:
        yield Taken(join(carried), 0, each - missing, *last)


def _rows_of_a_slice(filled: Filled) -> int:
    return max(1, SLICE_BYTES // filled.row_bytes)
