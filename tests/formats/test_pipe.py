"""What a thread writes comes out as it was, in order, in little memory; and whoever ends early ends both."""

import subprocess
import sys
import threading
from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2.formats import pipe as module
from corgi2.formats.pipe import PIPE_BYTES, Pipe, piped
from corgi2.formats.registry import format_of
from corgi2.records.checksum import Checksum
from corgi2.records.shard import end
from corgi2.records.spans import framed_table


def _encoders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "corgi2-encode"]


@given(st.lists(st.binary(max_size=50), max_size=40), st.integers(1, 20))
def test_what_is_written_comes_out(writes: list[bytes], slab: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLAB_BYTES", slab)
        out = bytearray()

        def make(pipe: Pipe) -> list[int]:
            return [pipe.write(data) for data in writes] + [pipe.tell()]

        result = yield_all(piped(make), out)
    assert bytes(out) == b"".join(writes)
    assert result == [*map(len, writes), len(out)]


def yield_all(pieces: object, out: bytearray) -> object:
    """Use up a generator; what it returns."""
    while True:
        try:
            out += next(pieces)  # type: ignore[call-overload]
        except StopIteration as end:
            return end.value


def test_a_cut_tells_the_checksum_since_the_last_one() -> None:
    def make(pipe: Pipe) -> list[bytes]:
        sums = []
        for data in (b"one", b"", b"three"):
            pipe.write(data)
            sums.append(pipe.cut())
        return sums

    assert yield_all(piped(make), bytearray()) == [Checksum.of(data) for data in (b"one", b"", b"three")]


def test_a_writer_waits_for_room() -> None:
    written = []

    def make(pipe: Pipe) -> None:
        for _ in range(100):
            pipe.write(bytes(1_000_000))
            written.append(pipe.tell())

    used = 0
    for piece in piped(make):
        assert (written[-1] if written else 0) <= used + PIPE_BYTES + len(piece)
        used += len(piece)
    assert used == 100_000_000


def test_a_piece_is_gone_when_the_next_is_asked_for() -> None:
    pieces = piped(lambda pipe: pipe.write(bytes(10_000_000)))
    first = next(pieces)
    assert first[0] == 0
    next(pieces)
    with pytest.raises(ValueError, match="released"):
        first[0]
    end(pieces)


def test_an_error_of_the_writer_reaches_the_user_after_what_came_before() -> None:
    def make(pipe: Pipe) -> None:
        pipe.write(b"good")
        raise OSError("the disk is gone")

    out = bytearray()
    with pytest.raises(OSError, match="the disk is gone"):
        yield_all(piped(make), out)
    assert out == b"good"
    assert not _encoders()


def test_an_interrupt_waits_for_no_writer() -> None:
    go_on = threading.Event()

    def make(pipe: Pipe) -> None:
        pipe.write(bytes(5_000_000))
        go_on.wait()

    pieces = piped(make)
    next(pieces)
    with pytest.raises(KeyboardInterrupt):
        pieces.throw(KeyboardInterrupt())
    (encoder,) = _encoders()
    go_on.set()
    encoder.join()


@pytest.mark.parametrize("used", [0, 1, 7])
def test_whoever_stops_using_stops_the_writer(used: int) -> None:
    steps = []

    def make(pipe: Pipe) -> None:
        for step in takewhile(lambda _: pipe.is_used, range(10_000)):
            steps.append(step)
            pipe.write(bytes(1_000_000))

    pieces = piped(make)
    for _ in range(used):
        next(pieces)
    end(pieces)
    assert not _encoders()
    assert len(steps) < 100


_COLLECTED = """
import gc, sys, threading
import numpy as np, pyarrow as pa
from corgi2.records.spans import framed_table
from corgi2.formats.registry import format_of
from corgi2.formats.parquet.profile import Profile

suffix, where = sys.argv[1:]
lock, go = threading.Lock(), threading.Event()
gc.disable()
noise = np.random.default_rng(0).integers(0, 256, 3_000_000, np.uint8)
is_parquet = suffix == ".parquet"
table = pa.table({"x": noise}) if is_parquet else framed_table(np.arange(0, len(noise) + 1, 1000), noise)

def blocks():
    yield [table]
    yield [table]
    go.wait()  # as much as a pipe holds
    if where == "in the writer":
        gc.collect()
    with lock:
        yield [table]

writing = format_of(suffix).write(blocks(), Profile(table.schema, {}).encode() if is_parquet else "")
next(writing)
box = [writing]
box.append(box)
with lock:
    del writing, box
    go.set()
    if where == "under a lock":
        gc.collect()
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join(20)
        assert not thread.is_alive()
print("well")
"""


@pytest.mark.parametrize("where", ["under a lock", "in the writer"])
@pytest.mark.parametrize("suffix", [".tar.zst", ".jsonl.zst", ".parquet"])
def test_what_is_written_may_be_collected_wherever_whatever_is_held(suffix: str, where: str) -> None:
    command = [sys.executable, "-c", _COLLECTED, suffix, where]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("well\n", "", 0)


@pytest.mark.parametrize("suffix", [".tar.zst", ".jsonl.zst"])
def test_ending_what_is_written_waits_for_its_writer(suffix: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, 12_000_000, np.uint8)
    table = framed_table(np.arange(0, len(noise) + 1, 1000), noise)
    writing = format_of(suffix).write([[table]] * 3, "")
    next(writing)
    assert _encoders()
    end(writing)
    assert not _encoders()
