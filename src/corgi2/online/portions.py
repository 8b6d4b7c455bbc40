"""The records of buffers, in portions of any size."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from corgi2.online.buffers import Filled
from corgi2.order import Indices
from corgi2.records import SLICE_BYTES


class Taken(NamedTuple):
    """Some records: ``size`` from ``start`` on of what several portions share, because taking many at once is cheaper;
    the buffer that the last of them came from, how many of that are done then, and in which order it is taken."""

    shared: Any
    start: int
    size: int
    filled: Filled
    done: int
    order: Indices

    def home(self, number: int) -> str:
        """Names one of the records: the first is 0, and the last must be in the buffer."""
        return self.filled.home(int(self.order[self.done - self.size + number]))


def portions(
    buffers: Iterator[tuple[Filled, Indices, int]], size: int | None, join: Callable[[list[Any]], Any]
) -> Iterator[Taken]:
    """The records of buffers in the orders given with them, each from a place on: in portions of ``size``, the last of
    which may be short; or, without a size, of a few MB. ``join`` joins parts that come from several buffers."""
    carried: list[Any] = []
    missing = 0
    last: tuple[Filled, int, Indices] | None = None
    for filled, order, begin in buffers:
        at, count = begin, len(order)
        each = size or _rows_of_a_slice(filled)
        if missing and at < count:
            step = min(missing, count - at)
            carried.append(filled.take(order[at : at + step]))
            at, missing = at + step, missing - step
            if not missing:
                yield Taken(join(carried), 0, each, filled, at, order)
                carried = []
        slab = each * max(1, _rows_of_a_slice(filled) // each)
        whole = at + ((count - at) // each * each if size else count - at)
        while at < whole:
            is_first = last is None and at == begin  # the caller waits for it
            some = order[at : min(whole, at + (each if is_first else slab))]
            shared = filled.take(some)
            for start in range(0, len(some), each):
                stop = min(len(some), start + each)
                yield Taken(shared, start, stop - start, filled, at + stop, order)
                filled.read_on()
            at += len(some)
        if at < count:
            carried.append(filled.take(order[at:]))
            missing = each - (count - at)
        last = (filled, count, order)
    if carried and last is not None:
        yield Taken(join(carried), 0, each - missing, *last)


def _rows_of_a_slice(filled: Filled) -> int:
    return max(1, SLICE_BYTES // filled.row_bytes)
