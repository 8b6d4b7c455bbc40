"""Progress for people: a bar on a terminal once two seconds have passed, nothing where there is no terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(label: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A bar over bytes; the function that it gives adds to it."""
    from tqdm import tqdm

    quiet = not sys.stderr.isatty()
    with tqdm(total=total_bytes, desc=label, unit="B", unit_scale=True, delay=2, disable=quiet, leave=False) as bar:
        yield lambda count: bar.update(count) and None
