"""The command line of the attack, and its table."""

import argparse
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.chaos.crew import carry_out
from benchmarks.chaos.trial import Kind, Result, Trial, chosen

_SECONDS = 15.0
"""Between two lines of progress."""


def main() -> int:
    options = _options()
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    trials = chosen(seed, options.trials, options.s3, options.ray)
    if options.only is not None:
        trials = [Trial(seed, options.only)]
    print(f"seed {seed}: {len(trials)} trials", flush=True)
    root = Path(options.folder, f"seed-{seed}").absolute()
    began = time.monotonic()
    results = list(_told(carry_out(trials, root, options.jobs, options.seconds), seed, root, len(trials)))
    print(f"\n{table(seed, results)}\n\n{time.monotonic() - began:,.0f} s with {options.jobs} trials at a time")
    with suppress(OSError):  # something failed, now or before
        root.rmdir()
    return int(any(result.problem for result in results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description="Attack shuffles.")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, help="of everything that is random; another one in every run, if not given")
    parser.add_argument("--only", type=int, help="repeat the trial of this number")
    parser.add_argument("--s3", type=int, help="at most so many trials with an S3 server; all that come, if not given")
    parser.add_argument("--ray", type=int, help="the same for a Ray cluster")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no trial is begun")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time")
    parser.add_argument("--folder", default=".bench/chaos", help="where to work, and to keep what failed")
    return parser.parse_args()


def _told(results: Iterator[Result], seed: int, root: Path, count: int) -> Iterator[Result]:
    """Say how it goes."""
    began = said = time.monotonic()
    done = blows = failures = 0
    for result in results:
        done, blows, failures = done + 1, blows + result.blows, failures + bool(result.problem)
        if result.problem:
            print(f"FAILED: {Trial(seed, result.number)}: {result.problem}")
            print(f"    kept in {root / f'trial-{result.number}'}")
            print(f"    again: python -m benchmarks.chaos --seed {seed} --only {result.number}", flush=True)
        if time.monotonic() - said > _SECONDS:
            said = time.monotonic()
            print(f"{done}/{count} trials, {blows} blows, {failures} failures, {said - began:,.0f} s", flush=True)
        yield result


def table(seed: int, results: Sequence[Result]) -> str:
    """Kinds and what became of them, in Markdown."""
    lines = ["| what | trials | runs | kills, stops, faults | failures | seconds |", "|---|---|---|---|---|---|"]
    for kind in Kind:
        lines.append(_row(kind, [result for result in results if Trial(seed, result.number).kind is kind]))
    return "\n".join([*lines, _row("all", results)])


def _row(name: str, results: Sequence[Result]) -> str:
    runs, blows = sum(result.runs for result in results), sum(result.blows for result in results)
    failures, seconds = sum(bool(result.problem) for result in results), sum(result.seconds for result in results)
    return f"| {name} | {len(results):,} | {runs:,} | {blows:,} | {failures:,} | {seconds:,.0f} |"


if __name__ == "__main__":
    sys.exit(main())
