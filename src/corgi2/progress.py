"""Progress for people: a bar on a terminal once two seconds have passed, nothing where there is no terminal."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE_SECONDS, _TICK_SECONDS = 2.0, 0.5


@contextmanager
def progress(label: str, total_bytes: int) -> Iterator[Callable[[int], object]]:
    """A bar over bytes; the function that it gives adds to it. The bar moves on by itself between two steps."""
    if not sys.stderr.isatty():
        yield lambda count: count
        return
    from tqdm import tqdm

    done = threading.Event()
    bar = tqdm(total=total_bytes, desc=label, unit="B", unit_scale=True, delay=_PATIENCE_SECONDS, leave=False)

    def tick() -> None:
        wait = _PATIENCE_SECONDS
        while not done.wait(wait):
            bar.refresh()
            wait = _TICK_SECONDS

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield bar.update
    finally:
        done.set()
        ticker.join()
        bar.close()
