"""Progress is shown to a person who waits, and to nobody else."""

import os
import pty
import subprocess
import sys
import termios

import pytest

_WAITS = """
import time
from corgi2.progress import progress
with progress("counting", 1000) as advance:
    advance(250)
    time.sleep({seconds})
"""


def _shown(seconds: float) -> str:
    """What a process that waits so long writes to a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = subprocess.Popen([sys.executable, "-c", _WAITS.format(seconds=seconds)], stderr=theirs)
    os.close(theirs)
    text = b""
    try:
        while chunk := os.read(ours, 4096):
            text += chunk
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    assert process.wait() == 0
    return text.decode()


@pytest.mark.slow
def test_a_bar_is_drawn_after_two_seconds_though_nothing_moves() -> None:
    shown = _shown(3.2)
    assert "counting" in shown
    assert "25%" in shown


def test_nothing_is_drawn_for_what_is_quick() -> None:
    assert _shown(0.2) == ""


def test_nothing_is_drawn_without_a_terminal() -> None:
    code = _WAITS.format(seconds=2.6)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")
