"""``corgi2 inspect --label``: how badly a data set is mixed, what was predicted for it, and what a loader would see."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from corgi2.dataset import Index, Source, catalog_of, find_source, index_of, lineage_of
from corgi2.quality.measuring import Measurement
from corgi2.quality.outcome import Outcome, outcome_of
from corgi2.quality.picture import inspect_page
from corgi2.quality.prediction import By, Evenness, Prediction, evenness, held_out_of, holdout_text, predict
from corgi2.stores import Options


@dataclass(frozen=True, slots=True)
class Mixing:
    """How well one data set is mixed, and the same for a second one after it."""

    measured: Measurement
    predicted: Prediction | str | None
    """The prediction, or why there is none; None if corgi2 did not shuffle the data."""
    online: Evenness | None
    outcome: Outcome | None
    """The outcome of the shuffle, if corgi2 has mixed it."""
    after: "tuple[str, Mixing] | None"
    sibling: str = ""
    """Where the rest is of what this was held out of."""

    def as_json(self) -> dict[str, Any]:
        predicted = self.predicted.h if isinstance(self.predicted, Prediction) else None
        result = self.measured.as_json() | {"h_predicted": predicted}
        if self.outcome is not None:
            result |= self.outcome.as_json()
        if self.sibling:
            result["held_out_of"] = self.sibling
        if self.online is not None:
            result["online"] = asdict(self.online)
        if self.after is not None:
            result["after"] = {"url": self.after[0], **self.after[1].as_json()}
        return result

    def as_text(self) -> str:
        lines = [(self.outcome or self.measured).as_text()]
        if isinstance(self.predicted, Prediction) and self.measured.tells:
            lines.append(f"  theory   {self.predicted.as_text()}")
        elif isinstance(self.predicted, str):
            lines.append(f"  theory   no prediction: {self.predicted}")
        if self.sibling:
            lines.append(holdout_text(self.sibling))
        if self.online is not None:
            lines.append(f"  buffer   {self.online.as_text()}")
        if self.after is not None:
            lines += [f"after: {self.after[0]}", self.after[1].as_text()]
        return "\n".join(lines)

    @property
    def verdict(self) -> str:
        """In the text and on the page."""
        return (self.outcome or self.measured).verdict

    def as_page(self, name: str, wording: Callable[[str], str] = str) -> str:
        shown = [(name if self.after is None else f"Before: {name}", self.measured, wording(self.verdict))]
        if self.after is not None:
            shown.append((f"After: {self.after[0]}", self.after[1].measured, wording(self.after[1].verdict)))
        return inspect_page(f"How {name} is mixed", wording(self.as_text()), shown)


def look_at_mixing(
    source: Source, index: Index, by: By, options: Options | None, online_buffer: int | None, after: str | None = None
) -> Mixing:
    """Measure by labels or features. ``after`` names a second data set, which is measured in the same way."""
    measured = by.measure(source, index)
    lineage = lineage_of(index)
    predicted = predict(source, index, by, options) if lineage is not None else None
    online = None
    if online_buffer is not None:
        if len(by.labels) != 1 or by.features:
            raise ValueError("online_buffer= is about classes: give one label=, and no feature=")
        known = predicted if isinstance(predicted, Prediction) else None
        online = evenness(source, index, online_buffer, measured, known)
    outcome = None
    if predicted is not None and lineage is not None:
        outcome = outcome_of(catalog_of(source, index), lineage, measured, predicted, online)
    then = None
    if after is not None:
        target = find_source(after, options, "inspect")
        then = (after, look_at_mixing(target, index_of(target), by, options, online_buffer))
    return Mixing(measured, predicted, online, outcome, then, held_out_of(source))
