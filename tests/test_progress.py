"""Progress is shown to a person who waits, and to nobody else."""

import os
import pty
import re
import subprocess
import sys
import termios

import pytest

from corgi2.progress import Bar

_WAITS = """
import time
from corgi2 import progress
progress.PATIENCE_SECONDS, progress.LINE_SECONDS = {patience}, {line_seconds}
with progress.progress("counting", 1000, 4) as bar:
    bar.advance(250)
    bar.step()
    time.sleep({seconds})
"""


_COMMAND = """
import click, time
from corgi2 import progress
from corgi2.cli.options import json_option
progress.PATIENCE_SECONDS = 0.2
@click.command()
@json_option
def wait(as_json):
    with progress.progress("counting", 1000) as bar:
        time.sleep(0.7)
wait([{words}])
"""


def _shown(seconds: float) -> str:
    """What a process that waits so long writes to a terminal."""
    return _on_terminal(_WAITS.format(seconds=seconds, patience=2, line_seconds=60))


def _on_terminal(code: str) -> str:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = subprocess.Popen([sys.executable, "-c", code], stderr=theirs)
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
    assert "1 of 4 groups" in shown


def test_nothing_is_drawn_for_what_is_quick() -> None:
    assert _shown(0.2) == ""


def test_with_json_there_are_lines_and_no_bar_on_a_terminal_either() -> None:
    assert "\r" in _on_terminal(_COMMAND.format(words="")).replace("\r\n", "")
    lines = _on_terminal(_COMMAND.format(words="'--json'")).splitlines()
    assert [line[:17] for line in lines] == ["corgi2: counting:"]


def _logged(patience: float, line_seconds: float) -> list[str]:
    """What a process without a terminal writes while it waits 0.7 s."""
    code = _WAITS.format(seconds=0.7, patience=patience, line_seconds=line_seconds)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_a_log_gets_a_line_once_somebody_waits_and_then_one_per_minute() -> None:
    assert _logged(2, 60) == []
    assert len(_logged(0.1, 60)) == 1
    lines = _logged(0.1, 0.25)
    assert len(lines) == 3
    assert lines[0].startswith("corgi2: counting: 250 B of 1.0 KB, 1 of 4 groups, ")
    assert re.search(r"/s, about [0-9.]+ s left$", lines[0])


def test_nothing_is_said_about_the_time_left_before_anything_is_done() -> None:
    bar = Bar("counting", 1000, 4)
    assert bar.line() == "corgi2: counting: 0 B of 1.0 KB, 0 of 4 groups"
    bar.advance(10)
    assert "/s, about " in bar.line()


def test_a_notebook_gets_a_bar() -> None:
    code = "import sys; sys.modules['ipykernel'] = sys\n" + _WAITS.format(seconds=0.7, patience=0.1, line_seconds=60)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    assert "counting:  25%" in done.stderr


def test_a_unit_is_named_once() -> None:
    bar = Bar("training", 250, unit="epochs")
    bar.advance(110)
    assert bar.line().startswith("corgi2: training: 110 of 250 epochs, ")
