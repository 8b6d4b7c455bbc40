"""``corgi2 inspect --label``: how badly a data set is mixed, what was predicted of it, and what a loader would see."""

from dataclasses import asdict, dataclass
from typing import Any

from corgi2.dataset import Index, Source, find_source, index_of, lineage_of
from corgi2.quality.measuring import Measurement
from corgi2.quality.picture import inspect_page
from corgi2.quality.prediction import By, Evenness, Prediction, evenness, predict
from corgi2.stores import Options


@dataclass(frozen=True, slots=True)
class Mixing:
    """Of one data set, and of what became of it."""

    measured: Measurement
    predicted: Prediction | str | None
    """Or why it is not; None where the data was not shuffled by corgi2."""
    online: Evenness | None
    after: "tuple[str, Mixing] | None"

    def as_json(self) -> dict[str, Any]:
        predicted = self.predicted.h if isinstance(self.predicted, Prediction) else None
        result = self.measured.as_json() | {"h_predicted": predicted}
        if self.online is not None:
            result["online"] = asdict(self.online)
        if self.after is not None:
            result["after"] = {"url": self.after[0], **self.after[1].as_json()}
        return result

    def as_text(self) -> str:
        lines = [self.measured.as_text()]
        if isinstance(self.predicted, Prediction):
            lines.append(f"  theory   {self.predicted.as_text()}")
        elif self.predicted is not None:
            lines.append(f"  theory   no prediction: {self.predicted}")
        if self.online is not None:
            lines.append(f"  buffer   {self.online.as_text()}")
        if self.after is not None:
            lines += [f"after: {self.after[0]}", self.after[1].as_text()]
        return "\n".join(lines)

    def as_page(self, name: str) -> str:
        shown = [(name if self.after is None else f"Before: {name}", self.measured)]
        if self.after is not None:
            shown.append((f"After: {self.after[0]}", self.after[1].measured))
        return inspect_page(f"How {name} is mixed", self.as_text(), shown)


def look_at_mixing(
    source: Source, index: Index, by: By, options: Options | None, online_buffer: int | None, after: str | None = None
) -> Mixing:
    """Measure by labels or features. ``after`` names a second data set, which is measured likewise."""
    measured = by.measure(source, index)
    predicted = predict(source, index, by, options) if lineage_of(index) is not None else None
    online = None
    if online_buffer is not None:
        if len(by.labels) != 1 or by.features:
            raise ValueError("online_buffer= tells of classes: give one label=, and no feature=")
        known = predicted if isinstance(predicted, Prediction) else None
        online = evenness(source, index, online_buffer, measured, known)
    then = None
    if after is not None:
        target = find_source(after, options, "inspect")
        then = (after, look_at_mixing(target, index_of(target), by, options, online_buffer))
    return Mixing(measured, predicted, online, then)
