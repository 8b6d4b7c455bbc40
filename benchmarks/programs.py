"""Programs that are measured against each other: each in a process of its own, in turn, time and memory of each."""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PEERS = Path(".bench/peers")
REQUIREMENTS = ("polars", "ray[data]", "pyarrow", "aiohttp")  # without the last, Ray Data cannot read a local file
SAMPLE_SECONDS = 0.1
OURS = "corgi2"


@dataclass(frozen=True, slots=True)
class Result:
    """Two measured numbers and what their ratio should be."""

    what: str
    ours: str
    theirs: str
    ratio: float
    target: str
    met: bool

    def row(self) -> str:
        met = "yes" if self.met else "**no**"
        return f"| {self.what} | {self.ours} | {self.theirs} | {self.ratio:.2f} | {self.target} | {met} |"


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a program took."""

    seconds: float
    peak_bytes: int
    laps: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Seconds of parts that the program timed itself."""

    def lap(self, name: str) -> "Run":
        return Run(statistics.median(self.laps[name]), self.peak_bytes)


Round = Mapping[str, Run]
"""A run of each program, by name."""


@dataclass(frozen=True, slots=True)
class Program:
    """A small script: ``work`` is timed, ``prepare`` is not. It knows ``source``, ``target`` and ``options``, and may
    put what it has timed itself into ``laps``."""

    name: str
    python: str
    prepare: str
    work: str

    @property
    def script(self) -> str:
        return _SCRIPT.format(prepare=self.prepare, work=self.work)


_SCRIPT = """
import json, os, subprocess, sys, time
from pathlib import Path
source, target, result = map(Path, sys.argv[1:4])
options, laps = json.loads(sys.argv[4]), {{}}
files = sorted(source.iterdir())
{prepare}
began = time.perf_counter()
{work}
seconds = time.perf_counter() - began
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
result.write_text(json.dumps([seconds, int(peak.split()[1]) * 1024, laps]))
"""

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # listen on 127.0.0.1 only, as on those: the address below does not do it
}

RAY_START = """
import ray
ray.init(
    num_cpus=os.cpu_count(),
    include_dashboard=False,
    log_to_driver=False,
    _node_ip_address="127.0.0.1",
    _temp_dir=options["scratch"],
)
"""


def install_peers(folder: Path = PEERS, requirements: Sequence[str] = REQUIREMENTS) -> str:
    """The Python of an environment that holds the peers; made where it is missing."""
    python = folder.absolute() / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, *requirements], check=True)
    return str(python)


def run_rounds(programs: Sequence[Program], source: Path, options: Mapping[str, Any], rounds: int) -> list[Round]:
    """All programs in turn, again and again."""
    return [{program.name: run(program, source, options) for program in programs} for _ in range(rounds)]


def run(program: Program, source: Path, options: Mapping[str, Any]) -> Run:
    """One program, into a new folder on the disk of its source, which is gone afterwards."""
    place = Path(tempfile.mkdtemp(dir=source.parent))
    scratch = Path(tempfile.mkdtemp())  # Ray's sockets need a short path
    os.sync()
    try:
        return _run_in(place, program, source, {**options, "scratch": str(scratch)})
    finally:
        shutil.rmtree(place)
        shutil.rmtree(scratch, ignore_errors=True)
        os.sync()


def _run_in(place: Path, program: Program, source: Path, options: Mapping[str, Any]) -> Run:
    result, log = place / "result.json", place / "log"
    arguments = [source.absolute(), place.absolute() / "out", result.absolute(), json.dumps(options)]
    command = [program.python, "-c", program.script, *map(str, arguments)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | _ENVIRONMENT)
        sampled = _watch(process)
    if process.returncode:
        raise RuntimeError(f"{program.name} failed with {process.returncode}: {log.read_text()[-2000:]}")
    seconds, peak_bytes, laps = json.loads(result.read_text())
    return Run(seconds, max(peak_bytes, sampled), laps)


def _watch(process: "subprocess.Popen[bytes]") -> int:
    """Wait for a process; the most memory that it and all below it were seen to take at once."""
    peak = 0
    while process.poll() is None:
        peak = max(peak, _family_bytes(process.pid))
        time.sleep(SAMPLE_SECONDS)
    return peak


def _family_bytes(pid: int) -> int:
    """Memory of a process and all below it: what is private to each, and what the largest of them shares."""
    statuses = {int(status["Pid"]): status for status in _statuses()}
    family = [status for status in statuses.values() if _is_below(status, pid, statuses)]
    private = sum(_kilobytes(status, "RssAnon") for status in family)
    return 1024 * (private + max((_kilobytes(status, "RssShmem") for status in family), default=0))


def _statuses() -> Iterator[dict[str, str]]:
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = path.read_text().splitlines()
        except OSError:  # it has ended
            continue
        yield {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _is_below(status: Mapping[str, str] | None, pid: int, statuses: Mapping[int, Mapping[str, str]]) -> bool:
    while status is not None and int(status["Pid"]) != pid:
        status = statuses.get(int(status["PPid"]))
    return status is not None


def _kilobytes(status: Mapping[str, str], name: str) -> int:
    return int(status.get(name, "0 kB").split()[0])


def make_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """A folder with data, made unless it is there."""
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        make(partial)
        partial.rename(folder)
    return folder


def faster(
    what: str, rounds: Sequence[Round], peer: str, amount: float, unit: str, least: float | None, ours: str = OURS
) -> Result:
    """Rates, of so many units; without a target, to know."""
    ratio = statistics.median(each[peer].seconds / each[ours].seconds for each in rounds)
    target, met = ("none", True) if least is None else (f">= {least}", ratio >= least)
    mine, theirs = (
        f"{amount / statistics.median(each[name].seconds for each in rounds):,.0f} {unit}/s" for name in (ours, peer)
    )
    return Result(f"{what}: speed against {peer}", mine, theirs, ratio, target, met)


def leaner(what: str, rounds: Sequence[Round], peer: str, most: float | None, ours: str = OURS) -> Result:
    ratio = statistics.median(each[ours].peak_bytes / each[peer].peak_bytes for each in rounds)
    mine, theirs = (_megabytes(max(each[name].peak_bytes for each in rounds)) for name in (ours, peer))
    target, met = ("none", True) if most is None else (f"< {most}", ratio < most)
    return Result(f"{what}: peak memory against {peer}", mine, theirs, ratio, target, met)


def within(what: str, rounds: Sequence[Round], buffer_bytes: int) -> Result:
    limit = 1.15 * buffer_bytes + 200e6
    peak = max(each[OURS].peak_bytes for each in rounds)
    what = f"{what}: peak memory against 1.15 × the buffer of {_megabytes(buffer_bytes)} and 200 MB"
    return Result(what, _megabytes(peak), _megabytes(limit), peak / limit, "<= 1", peak <= limit)


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def print_table(results: Iterable[Result]) -> int:
    """As they come; the exit code says whether all targets are met."""
    print("| measured | corgi2 | peer, or limit | ratio | target | met |\n|---|---|---|---|---|---|", flush=True)
    met = True
    for result in results:
        print(result.row(), flush=True)
        met &= result.met
    return 0 if met else 1
