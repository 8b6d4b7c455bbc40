"""Progress for people, once two seconds have passed: a bar on a terminal and in a notebook; elsewhere one line, and
then one per minute. If a program reads the output (``--json``), a terminal gets lines as well."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from corgi2.sizes import format_seconds, format_size

PATIENCE_SECONDS, LINE_SECONDS = 2.0, 60.0
_TICK_SECONDS = 0.5
BYTES = "B"
LINES_ONLY: ContextVar[bool] = ContextVar("lines_only", default=False)
"""Set if a program reads standard error: a bar would leave control characters between its lines."""


class Bar:
    """How many bytes, or other units, are done of the total; and how many groups, if there are any."""

    def __init__(self, label: str, total: int, groups: int = 0, unit: str = BYTES) -> None:
        self.label, self.total, self.groups, self.unit = label, total, groups, unit
        self.done = self.steps = 0
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def advance(self, count: int) -> None:
        with self._lock:
            self.done += count

    def step(self) -> None:
        """Count one more group as done."""
        with self._lock:
            self.steps += 1

    @property
    def groups_text(self) -> str:
        return f"{self.steps:,} of {self.groups:,} groups" if self.groups else ""

    def line(self) -> str:
        """The progress as one line of a log."""
        parts = [
            f"{self._text(self.done) if self.unit == BYTES else f'{self.done:,}'} of {self._text(self.total)}",
            self.groups_text,
        ]
        if self.done:  # until then, nothing tells how long it will take
            seconds = max(1e-9, time.monotonic() - self._started)
            left = (self.total - self.done) * seconds / self.done
            parts += [f"{self._text(int(self.done / seconds))}/s", f"about {format_seconds(left)} left"]
        return f"corgi2: {self.label}: " + ", ".join(part for part in parts if part)

    def _text(self, count: int) -> str:
        return format_size(count) if self.unit == BYTES else f"{count:,} {self.unit}"


@contextmanager
def progress(label: str, total: int, groups: int = 0, unit: str = BYTES) -> Iterator[Bar]:
    """A bar over bytes, or other units, which is redrawn even between two steps."""
    bar, done = Bar(label, total, groups, unit), threading.Event()
    show = _draw if _has_bar() else _log
    ticker = threading.Thread(target=show, args=(bar, done), daemon=True)
    ticker.start()
    try:
        yield bar
    finally:
        done.set()
        ticker.join()


def _has_bar() -> bool:
    return not LINES_ONLY.get() and (sys.stderr.isatty() or "ipykernel" in sys.modules)


def _log(bar: Bar, done: threading.Event) -> None:
    pause = PATIENCE_SECONDS
    while not done.wait(pause):
        print(bar.line(), file=sys.stderr, flush=True)
        pause = LINE_SECONDS


def _draw(bar: Bar, done: threading.Event) -> None:
    if done.wait(PATIENCE_SECONDS):
        return
    from tqdm.auto import tqdm

    shown: Any = tqdm(total=bar.total, desc=bar.label, unit=bar.unit, unit_scale=True, leave=False)
    shown.start_t -= PATIENCE_SECONDS
    while True:
        shown.set_postfix_str(bar.groups_text, refresh=False)
        shown.n = bar.done
        shown.refresh()
        if done.wait(_TICK_SECONDS):
            break
    shown.close()
