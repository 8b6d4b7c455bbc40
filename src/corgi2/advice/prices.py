"""What a store charges: list prices in a data file, with their date, or a person's own."""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from corgi2.errors import SourceError

_NUMBERS = ("read_per_million", "write_per_million", "gb_month")
_EXAMPLE = '{"read_per_million": 0.4, "write_per_million": 5.0, "gb_month": 0.023}'


@dataclass(frozen=True, slots=True)
class Prices:
    """In dollars: a million reads, a million writes, a GB (10⁹ bytes) for a month."""

    what: str
    date: str
    read_per_million: float
    write_per_million: float
    gb_month: float

    def requests(self, reads: float, writes: float) -> float:
        return (reads * self.read_per_million + writes * self.write_per_million) / 1e6

    def month(self, size: float) -> float:
        return size / 1e9 * self.gb_month


NOTHING = Prices("this machine, which charges nothing", "", 0, 0, 0)


def known() -> dict[str, Any]:
    """The price lists that come with corgi2, by name."""
    return dict(json.loads((files("corgi2") / "data" / "prices.json").read_text("utf-8")))


def load_prices(name: str) -> Prices:
    """A list by its name, or a file of one's own."""
    lists = known()
    if name in lists:
        return _prices(lists[name], name)
    path = Path(name)
    if not path.is_file():
        raise SourceError(f"no prices {name!r}: give {', '.join(lists)}, or a JSON file such as {_EXAMPLE}")
    try:
        held = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{name}: is no JSON ({error}); write {_EXAMPLE}") from error
    return _prices(held, name)


def _prices(held: Any, name: str) -> Prices:
    values = held if isinstance(held, dict) else {}
    for key in _NUMBERS:
        value = values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise SourceError(f"{name}: {key} is a number of dollars (got {value!r}); write {_EXAMPLE}")
    numbers = {key: float(values[key]) for key in _NUMBERS}
    what, date = (_printable(values.get(key, other)) for key, other in (("what", name), ("date", "")))
    return Prices(what, date, **numbers)


def _printable(text: Any) -> str:
    return "".join(filter(str.isprintable, str(text)))
