"""Measure, plan, shuffle, verify and train, on digits that lie class by class."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from corgi2.advice import plan
from corgi2.dataset import find_source, index_source, save_index
from corgi2.demo.digits import LAYOUT, Floats, load_digits, write_shards
from corgi2.demo.race import EPOCHS, SEEDS, predicted, race, runners
from corgi2.demo.report import report, rows
from corgi2.errors import SourceError
from corgi2.offline import shuffle
from corgi2.proof import verify
from corgi2.quality import Measurement, measure
from corgi2.sizes import plural

_ALL = 10**6

_MARK = ".made-by-corgi2-demo"

_SHADES, _LEVELS = " ░▒▓█", "▁▂▃▄▅▆▇█"

_ROWS = 16


def run(folder: str, seeds: int = SEEDS) -> None:
    """The whole story, told as it happens."""
    digits, root = load_digits(), Path(folder)
    _make_room(root)
    before, told = (
        root / "before",
        [f"{LAYOUT.total:,} images of digits, sorted by class, in {LAYOUT.blocks} tar shards"],
    )

    def tell(text: str) -> None:
        click.echo(text)
        told.append(text)

    write_shards(digits, before)
    click.echo(f"{told[0]}: {before}")
    first = measure(before, ["cls"], sample=_ALL)
    tell(f"Measured: h_D = {first.h_D:.3g} of at most b = {first.block_records:g}: {first.verdict}.")
    tell(f"Planned:  {_advice(before)}")
    mixed = [root / f"mixed-{seed}" for seed in range(seeds)]
    for seed, place in enumerate(mixed):
        shuffle(before, place, buffer_blocks=LAYOUT.buffer, seed=seed)
    second = measure(mixed[0], ["cls"], sample=_ALL)
    groups = LAYOUT.blocks // LAYOUT.buffer
    tell(
        f"Shuffled: {plural(groups, 'random group')} of {LAYOUT.buffer} shards, each mixed; h_D = {second.h_D:.3g} now."
    )
    click.echo(f"\n{_picture(first, second)}\n")
    verdict = verify(before, mixed[0])
    if not verdict.same:
        raise SourceError(f"{root}: {verdict.as_text()}")
    tell(f"Verified: {verdict.as_text()}.")
    results = race(digits, runners(digits, before, mixed.__getitem__), seeds)
    expected = predicted(first.h_D)
    tell(f"Trained:  the same network, {EPOCHS} epochs, {seeds} seeds, buffers of {LAYOUT.buffer} shards.")
    click.echo(f"\n{_table(*rows(results, expected), [one.curves.mean(axis=0) for one in results])}\n")
    page = root / "report.html"
    page.write_text(report(told, first, second, results, expected), encoding="utf-8")
    click.echo(f"Report:   {page.resolve().as_uri()}")


def _make_room(root: Path) -> None:
    if root.exists() and not (root / _MARK).exists():
        raise SourceError(f"{root}: is not a folder that the demo made; name another one, which it may overwrite")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / _MARK).touch()


def _advice(before: Path) -> str:
    """What ``corgi2 plan`` would say, if these shards lay in a bucket."""
    source = find_source(before)
    index = index_source(source)
    save_index(source.store, index)
    buffer = LAYOUT.buffer * int(index.column("footprint").max())
    advice = plan(
        before,
        buffer=buffer,
        online_buffer=2 * buffer,  # one half is read while the other is consumed
        epochs=EPOCHS,
        label=("cls",),
        sample=_ALL,
        prices="aws",
        bandwidth=500_000_000,
        latency=30.0,
    )
    return f"{advice.recommended.name}: {advice.why}."


def _picture(before: Measurement, after: Measurement) -> str:
    """Some shards as rows, classes as columns, darker for more images."""
    if before.heat is None or after.heat is None:
        raise ValueError("a picture needs classes")
    chosen = np.linspace(0, LAYOUT.blocks - 1, _ROWS).astype(int)
    left, right = before.heat.counts[chosen], after.heat.counts[chosen]
    lines = [
        f"  shard {number:2d}  |{_shades(a)}|      |{_shades(b)}|"
        for number, a, b in zip(chosen.tolist(), left, right, strict=True)
    ]
    head = "            before: its digits".ljust(2 * left.shape[1] + 20) + "after: its digits"
    return "\n".join([head, *lines])


def _shades(counts: Floats) -> str:
    levels = np.ceil(counts / counts.sum() * (len(_SHADES) - 1)).astype(int)
    return "".join(_SHADES[min(level, len(_SHADES) - 1)] * 2 for level in levels)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]], curves: Sequence[Floats]) -> str:
    """A table with a curve of accuracy by epoch at the end of each line."""
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    shown = []
    for cells, curve in zip([head, *lines], ["epoch by epoch", *map(_curve, curves)], strict=True):
        padded = [f"{cells[0]:<{widths[0]}}"]
        padded += [f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True)]
        shown.append(f"  {'  '.join(padded)}  {curve}")
    return "\n".join(shown)


def _curve(values: Floats) -> str:
    """From 0 to 100 %."""
    return "".join(_LEVELS[min(len(_LEVELS) - 1, int(value / 100 * len(_LEVELS)))] for value in values)
