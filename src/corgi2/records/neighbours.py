"""Small neighbours that are worked on together, because each would cost more than its bytes."""

from collections.abc import Iterator, Sequence

_RUN_BYTES = 1 << 20

_LEAST_RUNS = 64
"""Runs are short enough that there are at least this many of them: for as many threads, which may wait for a store."""


def runs(sizes: Sequence[int]) -> Iterator[slice]:
    """Neighbours of at most a megabyte together; whatever is larger is alone."""
    most, start, held = max(1, len(sizes) // _LEAST_RUNS), 0, 0
    for number, size in enumerate(sizes):
        if start < number and (held + size > _RUN_BYTES or number - start == most):
            yield slice(start, number)
            start, held = number, 0
        held += size
    if sizes:
        yield slice(start, len(sizes))
