"""Runs of ``corgi2`` as processes on the leash, what is done to them, and what they may say."""

import errno
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos.leash import leashed

RUN_SECONDS = 120
"""After which a run hangs."""
_BARE = {os.strerror(number) for number in errno.errorcode}
_ERRNO = re.compile(r"Traceback|\[Errno \d+\]")


class BrokenPromiseError(Exception):
    """A promise that corgi2 broke."""


@dataclass(slots=True)
class Run:
    """A process. What it says is kept in a file."""

    process: "subprocess.Popen[bytes]"
    words: Path
    since: float = field(default_factory=time.monotonic)
    was_killed: bool = False
    was_struck: bool = False

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> bool:
        """Whether it lived."""
        return self._send(signal.SIGKILL)

    def stop(self) -> bool:
        return self._send(signal.SIGSTOP)

    def go_on(self) -> bool:
        return self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> bool:
        alive = self.is_alive
        if alive:
            self.process.send_signal(number)
            self.was_killed |= number == signal.SIGKILL
        return alive

    def end(self, codes: Sequence[int]) -> None:
        """Wait for it, and check what it said."""
        try:
            code = self.process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
            raise BrokenPromiseError(f"{self.words.name}: no end after {RUN_SECONDS} s") from None
        text = self.words.read_text(errors="replace")
        killed = self.was_killed and code == -signal.SIGKILL
        if not killed and code not in codes:
            raise BrokenPromiseError(f"{self.words.name}: exit code {code}: {text[-600:].strip()}")
        check_words(self.words.name, text, code, is_whole=not killed)


def check_words(name: str, text: str, code: int, is_whole: bool = True) -> None:
    """Lines of ours, each with what and where; an error has one. The last words of the killed may be cut short."""
    lines = text.split("\n")[: None if is_whole else -1]
    bad = [line for line in lines if line and (_ERRNO.search(line) or not line.startswith("corgi2: "))]
    bare = [line for line in lines if line.removeprefix("corgi2: ") in _BARE]
    if bad or bare:
        raise BrokenPromiseError(f"{name}: says {(bad or bare)[0]!r}")
    if code == 3 and not text.strip():
        raise BrokenPromiseError(f"{name}: exit code 3 without a word")


def start(words: Sequence[str], environment: Mapping[str, str], said: Path) -> Run:
    with said.open("wb") as output:
        process = subprocess.Popen(
            leashed([*words]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output, env=environment
        )
    return Run(process, said)


Event = tuple[float, Callable[[], object]]
"""So many seconds from the beginning, something happens."""


def play(events: Sequence[Event]) -> None:
    """One thing after the other, each in its time."""
    began = time.monotonic()
    for at, act in sorted(events, key=lambda event: event[0]):
        time.sleep(max(0.0, began + at - time.monotonic()))
        act()
