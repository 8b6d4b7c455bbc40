"""Throws damaged shards at the formats: ``python -m benchmarks.fuzz --count 1000000``.

A damaged shard may pass, or be refused with a one-line `ShardError` that names it (or the arena's `MemoryError`).
Anything else is a failure: another exception, a crash, more than 20 s, memory beyond ``--memory``, or an output that
does not hold as many records as went in. The cases are divided among all formats, or given to ``--format``. Every run
has another ``--seed``, which it prints; case N of a seed is always the same, and ``--only N`` repeats it.

Cases run one after another in a process of their own, which is started again behind a case that ended it, and ends with
whoever began it.
"""

import argparse
import multiprocessing
import random
import resource
import secrets
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from ctypes import Array, c_int64
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawArray
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.chaos.leash import hold
from benchmarks.corpus import Seed, seeds
from benchmarks.mutation import bomb, compress, damaged
from corgi2.errors import ShardError
from corgi2.formats.format import Format
from corgi2.formats.registry import format_of
from corgi2.records.arena import Arena
from corgi2.records.group import Group, gather
from corgi2.records.shard import Piece
from corgi2.sizes import parse_size

SUFFIXES = (
    *(".tar", ".tar.gz", ".tar.zst", ".parquet", ".arrow", ".feather", ".jsonl", ".jsonl.gz", ".jsonl.zst"),
    *(".tfrecord", ".tfrecord.gz"),
)
ARENA_BYTES = 64_000_000
BLOCK_BYTES = 4_000
SLICE_BYTES = 4_000
CASE_SECONDS = 20
ADDRESS_BYTES = 32 << 30
"""Address space of a worker, most of which is never touched: stops what would take the whole machine."""
SHOWN = 3
"""Failures of one class that are printed."""
TOLD_SECONDS = 60.0
"""Between two lines of progress."""

_CODECS = {".gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True, slots=True)
class MemoryShard:
    """A shard that lies in memory."""

    name: str
    version: str
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def readinto(self, start: int, buffer: memoryview) -> None:
        stop = start + len(buffer)
        if start < 0 or stop > len(self.data):
            raise AssertionError(f"bytes {start} to {stop} were asked of {len(self.data)}")
        buffer[:] = self.data[start:stop]


@dataclass(frozen=True, slots=True)
class Failure:
    case: int
    kind: str
    detail: str


@dataclass(slots=True)
class Tally:
    suffix: str
    cases: int = 0
    refused: int = 0
    passed: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)

    def row(self) -> str:
        failures = sum(self.kinds.values())
        counts = f"{self.cases:,} | {self.refused:,} | {self.passed:,} | {failures:,}"
        return f"| {self.suffix} | {counts} | {self.seconds:,.0f} |"


class BrokenPromiseError(Exception):
    """A promise that the formats broke."""


@dataclass(frozen=True, slots=True)
class Pool:
    """What the damaged shards of one suffix are made of."""

    kind: str
    codec: str | None
    plain: Sequence[Seed]
    packed: Sequence[Seed]
    bombs: Sequence[Seed]


@cache
def pool_of(suffix: str) -> Pool:
    _, kind, extra = f"{suffix}.".split(".", 2)
    codec = _CODECS.get(f".{extra}"[:-1])
    plain = seeds(kind)
    if codec is None:
        return Pool(kind, None, plain, (), ())
    packed = [Seed(compress(seed.data, codec), ()) for seed in plain]
    return Pool(kind, codec, plain, packed, [bomb(plain[0], codec)])


def shard_of(suffix: str, seed: int, case: int) -> MemoryShard:
    """The damaged shard with this number."""
    rng = random.Random(f"{suffix} {seed} {case}")  # noqa: S311 - to be repeated, not to be secret
    pool = pool_of(suffix)
    if pool.codec is None:
        data = damaged(pool.kind, pool.plain, rng)
    elif rng.random() < 0.001:
        data = damaged("", pool.bombs, rng)
    elif rng.random() < 0.4:
        data = damaged("", pool.packed, rng)
    else:
        data = compress(damaged(pool.kind, pool.plain, rng), pool.codec)
    return MemoryShard(f"damaged/{case}{suffix}", f"{seed} {case}", data)


def run_case(shard: MemoryShard, suffix: str, arena: Arena, case: int = 0) -> bool:
    """Whether the shard passes; a failure is raised. Even cases are read by blocks, odd ones whole."""
    try:
        _try_all(format_of(suffix), shard, arena, whole=case % 2 == 1)
    except ShardError as error:
        _check_message(error, shard)
        return False
    except MemoryError as error:
        if type(error) is not MemoryError or "buffer" not in str(error):
            raise
        return False
    return True


def _try_all(format_: Format, shard: MemoryShard, arena: Arena, whole: bool) -> None:
    """Scan, read, write, decode. What scan refuses is read at times nevertheless: a reader may have no index."""
    pieces = [Piece(shard, 0, shard.size)]
    try:
        scan = format_.scan(shard, BLOCK_BYTES)
    except ShardError:
        if whole:
            _read(format_, pieces, arena)
        raise
    expected = sum(block.records for block in scan.blocks)
    if not whole:
        pieces = [Piece(shard, block.start, block.length) for block in scan.blocks]
    group = _read(format_, pieces, arena)
    if group.records != expected:
        raise BrokenPromiseError(f"scan counted {expected} records, read {group.records} in {len(pieces)} pieces")
    _rewrite(format_, group, shard)


def _read(format_: Format, pieces: Sequence[Piece], arena: Arena) -> Group:
    arena.clear()
    return format_.read(pieces, arena, decoding=True)


def _rewrite(format_: Format, group: Group, shard: MemoryShard) -> None:
    order = np.random.default_rng(group.records).permutation(group.records)
    tables = list(gather(group, order, SLICE_BYTES))
    output = b"".join(bytes(part) for part in format_.write([tables], format_.profile(shard)))
    if group.keys is None or len(np.unique(group.keys)) == group.records:  # else the order may join two records
        _check_output(format_, MemoryShard("output", f"of {shard.version}", output), group.records)
    for _ in format_.decoder(group, shard.name).samples(order):
        pass


def _check_output(format_: Format, output: MemoryShard, records: int) -> None:
    try:
        scan = format_.scan(output, BLOCK_BYTES)
    except ShardError as error:
        raise BrokenPromiseError(f"the output is refused: {error.problem}") from error
    found = sum(block.records for block in scan.blocks)
    if found != records:
        raise BrokenPromiseError(f"{records} records went in, {found} came out")


def _check_message(error: ShardError, shard: MemoryShard) -> None:
    text = str(error)
    if len(text.splitlines()) != 1 or not text.isprintable():
        raise BrokenPromiseError(f"not one printable line: {text!r}") from error
    if shard.name not in text:
        raise BrokenPromiseError(f"does not name the shard: {text!r}") from error


def failure_of(case: int, error: BaseException) -> Failure:
    """Failures of one class come from the same line of the same file."""
    cause = error.__cause__ if isinstance(error, BrokenPromiseError) and error.__cause__ else error
    frames = traceback.extract_tb(cause.__traceback__)
    ours = [frame for frame in frames if "corgi2" in frame.filename] or frames
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"
    said = str(error).partition(":")[0] if isinstance(error, BrokenPromiseError) else ""
    said = "".join(letter for letter in said if not letter.isdigit())
    return Failure(case, f"{type(error).__name__} {said} at {place}", f"{type(error).__name__}: {error}"[:600])


def work(suffix: str, seed: int, span: tuple[int, int], memory: int, state: "Array[c_int64]", out: Connection) -> None:
    """A worker: cases ``span``, progress in ``state`` (case, refused, passed), failures into the pipe."""
    hold()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pa.set_cpu_count(1)
    arena = Arena(ARENA_BYTES)
    for case in range(*span):
        state[0] = case
        shard = shard_of(suffix, seed, case)
        try:
            state[2 if run_case(shard, suffix, arena, case) else 1] += 1
        except BaseException as error:
            out.send(failure_of(case, error))
        peak = _peak()
        if peak > memory:  # a peak does not fall again, so another process must go on
            out.send(Failure(case, "memory", f"{peak / 1e9:.1f} GB at the peak, {len(shard.data)} bytes of shard"))
            return
    state[0] = span[1]


def _peak() -> int:
    """Bytes that this process had resident at the most. (A resource's ru_maxrss has the parent's in it.)"""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def check_sound(suffix: str) -> None:
    """What is to be damaged must pass, or the damage shows nothing."""
    pool = pool_of(suffix)
    for number, seed in enumerate(pool.packed or pool.plain):
        if not run_case(MemoryShard(f"sound{suffix}", str(number), seed.data), suffix, Arena(ARENA_BYTES)):
            raise AssertionError(f"sound shard {number} of {suffix} is refused")


def fuzz(suffix: str, seed: int, count: int, memory: int) -> Tally:
    """All cases of a suffix."""
    check_sound(suffix)
    tally = Tally(suffix, count)
    state = RawArray(c_int64, 3)
    began = time.monotonic()
    while state[0] < count:
        for failure in _run_worker(suffix, seed, count, memory, state):
            tally.kinds[failure.kind] += 1
            if tally.kinds[failure.kind] <= SHOWN:
                print(f"FAILED: {failure.kind}\n    {failure.detail}")
                print(f"    again: {command(suffix, seed, failure.case)}", flush=True)
    tally.refused, tally.passed, tally.seconds = state[1], state[2], time.monotonic() - began
    return tally


def command(suffix: str, seed: int, case: int) -> str:
    """What repeats a case."""
    return f"python -m benchmarks.fuzz --format {suffix[1:]} --seed {seed} --only {case}"


def shares(count: int, suffixes: Sequence[str]) -> dict[str, int]:
    """So many cases, divided among formats."""
    each, more = divmod(count, len(suffixes))
    return {suffix: each + (number < more) for number, suffix in enumerate(suffixes)}


def _run_worker(suffix: str, seed: int, count: int, memory: int, state: "Array[c_int64]") -> Iterator[Failure]:
    """One worker from the case in ``state`` on, which is left at the case to go on with."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    arguments = (suffix, seed, (state[0], count), memory, state, sender)
    process = context.Process(target=work, args=arguments)
    process.start()
    sender.close()
    hung = yield from _watch(process.kill, receiver, state, f"{suffix}: {{:,}} of {count:,}")
    process.join()
    if hung:
        yield Failure(state[0], "hang", f"more than {CASE_SECONDS} s")
    elif process.exitcode:
        name = signal.Signals(-process.exitcode).name if process.exitcode < 0 else f"exit code {process.exitcode}"
        yield Failure(state[0], f"crash {name}", "the process ended")
    state[0] = min(count, state[0] + 1)


def _watch(
    kill: Callable[[], None], receiver: Connection, state: "Array[c_int64]", words: str
) -> Generator[Failure, None, bool]:
    """Failures until the worker ends, or is ended because a case takes too long. It says how far it is."""
    case = state[0]
    since = told = time.monotonic()
    while True:
        if receiver.poll(0.5):
            try:
                yield receiver.recv()
            except EOFError:
                return False
        if state[0] != case:
            case, since = state[0], time.monotonic()
        elif time.monotonic() - since > CASE_SECONDS:
            kill()
            return True
        if time.monotonic() - told > TOLD_SECONDS:
            told = time.monotonic()
            print(words.format(state[0]), flush=True)


def repeat(suffix: str, seed: int, case: int, save: str | None) -> int:
    """One case, here, with its whole trace."""
    shard = shard_of(suffix, seed, case)
    if save:
        Path(save).write_bytes(shard.data)
    try:
        passed = run_case(shard, suffix, Arena(ARENA_BYTES), case)
    except BaseException:
        traceback.print_exc()
        return 1
    print("passed" if passed else "refused")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="cases, of all formats together")
    parser.add_argument("--format", default="all", help=", ".join(suffix[1:] for suffix in SUFFIXES))
    parser.add_argument("--seed", type=int, help="another one in every run, if not given")
    parser.add_argument("--memory", type=parse_size, default="2GB", help="the most that a worker may take")
    parser.add_argument("--only", type=int, help="repeat this case")
    parser.add_argument("--save", help="with --only: where to keep the damaged shard")
    options = parser.parse_args()
    suffixes = SUFFIXES if options.format == "all" else (f".{options.format.lstrip('.')}",)
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    if options.only is not None:
        return repeat(suffixes[0], seed, options.only, options.save)
    print(f"seed {seed}: {options.count:,} damaged shards", flush=True)
    dealt = shares(options.count, suffixes)
    return report([fuzz(suffix, seed, count, options.memory) for suffix, count in dealt.items()])


def report(tallies: Sequence[Tally]) -> int:
    for tally in tallies:
        for kind, count in tally.kinds.most_common():
            print(f"{tally.suffix}: {count} x {kind}")
    print("\n| format | cases | refused | passed | failures | seconds |\n|---|---|---|---|---|---|")
    print("\n".join(tally.row() for tally in [*tallies, _sum(tallies)]))
    return 1 if any(tally.kinds for tally in tallies) else 0


def _sum(tallies: Sequence[Tally]) -> Tally:
    return Tally(
        "all",
        sum(tally.cases for tally in tallies),
        sum(tally.refused for tally in tallies),
        sum(tally.passed for tally in tallies),
        sum(tally.seconds for tally in tallies),
        sum((tally.kinds for tally in tallies), Counter()),
    )


if __name__ == "__main__":
    sys.exit(main())
