"""The outcome of a shuffle by corgi2: whether it mixed as well as predicted, and what a loader's windows then have.

How well one pass mixes depends on luck with its groups. What is left between G groups is a sum of squares with about
(G − 1)·d degrees of freedom, if blocks differ in d directions; what a shuffle within groups leaves has as many for each
block. Both are given three standard deviations (of their cube roots, which are nearly normal), so that it takes more
than bad luck to be told that something is wrong.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from corgi2 import theory
from corgi2.dataset import Catalog
from corgi2.order import Indices
from corgi2.quality.measurement import Measurement
from corgi2.quality.prediction import Evenness, Prediction, felt_in
from corgi2.sizes import format_number, format_size, plural

_DEVIATIONS = 3.0


@dataclass(frozen=True, slots=True)
class Window:
    """What a loader sees if its buffers hold one block of every group."""

    blocks: int
    bytes: int
    """The approximate size of the buffers of all readers, including the half that is read ahead."""
    H: float
    H_random: float
    H_full: float
    is_round: bool = False
    """Whether these are the groups of one round."""

    def as_text(self) -> str:
        of = " of a round" if self.is_round else ""
        spread = "" if self.blocks == 1 else f", one of each group{of}"
        return (
            f"H = {format_number(self.H)} with even picks and windows of {plural(self.blocks, 'block')}{spread} (about "
            f"{format_size(self.bytes)} of buffers in all); {format_number(self.H_random)} with random picks; a full "
            f"shuffle would have {format_number(self.H_full)}"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a shuffle."""

    measured: Measurement
    predicted: Prediction | str
    low: float
    high: float
    """The range of h that luck with groups and samples allows, if it was predicted."""
    window: Window
    asked: Evenness | None

    @property
    def agrees(self) -> bool | None:
        """Whether h is as predicted; None if nothing was predicted, or the label does not tell."""
        if isinstance(self.predicted, str) or not self.measured.tells:
            return None
        return self.measured.h_D_low <= self.high and self.measured.h_D_high >= self.low

    def as_json(self) -> dict[str, Any]:
        predicted = isinstance(self.predicted, Prediction)
        limits = {"h_predicted_low": self.low, "h_predicted_high": self.high} if predicted else {}
        return {**limits, "agrees": self.agrees, "window": asdict(self.window)}

    @property
    def verdict(self) -> str:
        """One plain sentence."""
        if not self.measured.tells or self.measured.blocks == 1:
            return self.measured.verdict
        h = f"mixed by corgi2: h = {format_number(self.measured.h_D)} {self.measured.by_text}"
        if isinstance(self.predicted, str):
            return f"{h}; whether that is as predicted is not known"
        limits = f"{format_number(self.predicted.h)}, and by luck between {format_number(self.low)} and "
        limits += format_number(self.high)
        if self.agrees:
            return f"{h}, as predicted ({limits})"
        better = "better" if self.measured.h_D < self.predicted.h else "worse"
        return (
            f"{h}, {better} than predicted ({limits}): one of the two data sets may have changed since (corgi2 verify "
            "SRC DST), or the sampled blocks are unlike the others (sample=1000000 reads all)"
        )

    def as_text(self) -> str:
        lines = [self.measured.h_text, f"  mixing   {self.verdict}"]
        if not self.measured.tells:
            return "\n".join(lines)
        asked = ""
        if self.asked is not None:
            asked = f"H = {format_number(self.asked.H)} in this buffer of {plural(self.asked.blocks, 'block')}; "
        return "\n".join([*lines, f"  loader   {asked}{self.window.as_text()}"])


def outcome_of(
    catalog: Catalog, lineage: Indices, measured: Measurement, predicted: Prediction | str, asked: Evenness | None
) -> Outcome:
    """The outcome for blocks that corgi2 has mixed."""
    known = predicted if isinstance(predicted, Prediction) else None
    low, high = limits_of(measured, known) if known is not None else (0.0, 0.0)
    window = _window(catalog, lineage, measured, known)
    return Outcome(measured, predicted, low, high, window, asked)


def limits_of(measured: Measurement, predicted: Prediction) -> tuple[float, float]:
    """The limits between which h should lie. The measurement before the shuffle is as certain as its interval."""
    within, source = min(1.0, predicted.h), predicted.source
    found = []
    for sign, sampled in ((-1, source.h_D_low), (1, source.h_D_high)):
        between = (predicted.h - within) * (sampled / source.h_D if source.h_D else 1.0)
        luck = (
            _luck(predicted.freedom * source.directions, sign),
            _luck((measured.blocks - 1) * measured.directions, sign),
        )
        found.append(between * luck[0] + within * luck[1])
    return found[0], found[1]


def _luck(freedom: float, sign: int) -> float:
    """The mean of this many squares of normal numbers, over its expectation, at a few standard deviations."""
    part = 2 / (9 * max(0.5, freedom))
    return float(max(0.0, 1 - part + sign * _DEVIATIONS * np.sqrt(part)) ** 3)


def _window(catalog: Catalog, lineage: Indices, measured: Measurement, predicted: Prediction | None) -> Window:
    """Of one block of every group, or of every group of a round, by orders of the loader."""
    rounds = catalog.rounds
    coarsest = lineage[:, :1] if rounds is None else lineage[rounds == rounds[0], :1]
    groups = len(np.unique(coarsest, axis=0))
    data, even = measured.data, felt_in(catalog, groups, measured, predicted).H
    size = 2 * groups * int(catalog.index.column("footprint").max())
    others = theory.window_random(data, groups), theory.window_full(data, groups)
    return Window(groups, size, max(0.0, even), *others, rounds is not None)
