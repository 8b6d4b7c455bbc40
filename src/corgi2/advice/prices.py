"""What stores, traffic and machines cost: list prices in a data file, with their dates, or the user's own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from corgi2.errors import SourceError

_NUMBERS = ("read_per_million", "write_per_million", "gb_month")
_EXAMPLE = '{"read_per_million": 0.4, "write_per_million": 5.0, "gb_month": 0.023}'


@dataclass(frozen=True, slots=True)
class Prices:
    """In dollars: per million reads, per million writes, per GB (10⁹ bytes) and month."""

    what: str
    date: str
    read_per_million: float
    write_per_million: float
    gb_month: float
    traffic: Mapping[str, float] = field(default_factory=dict)
    """Per GB that is read, by destination."""
    nodes: Mapping[str, float] = field(default_factory=dict)
    """Machines, per hour."""
    nodes_what: str = ""

    def requests(self, reads: float, writes: float) -> float:
        return (reads * self.read_per_million + writes * self.write_per_million) / 1e6

    def month(self, size: float) -> float:
        return size / 1e9 * self.gb_month


NOTHING = Prices("this machine, which charges nothing", "", 0, 0, 0)


def known() -> dict[str, Any]:
    """The price lists that come with corgi2, by name."""
    return dict(json.loads((files("corgi2") / "data" / "prices.json").read_text("utf-8")))


def load_prices(name: str) -> Prices:
    """A list by its name, or a file of the user's own."""
    lists = known()
    if name in lists:
        return _prices(lists[name], name)
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"no prices {name!r}: give {', '.join(lists)}, or a JSON file such as {_EXAMPLE}")
    try:
        held = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{name}: is not JSON ({error}); write {_EXAMPLE}") from error
    return _prices(held, name)


def node_price(given: str | float, prices: Prices) -> tuple[float, str]:
    """Dollars per hour, and their origin: a number, or a type of machine in some list, the given list first."""
    lists = [prices, *(load_prices(name) for name in known())]
    found = next((each for each in lists if given in each.nodes), None)
    if found is not None:
        return found.nodes[str(given)], f"{given}, {found.nodes_what}"
    types = ", ".join(name for each in lists[1:] for name in each.nodes)
    return _dollars(given, "node_price", f"or a type of machine: {types}"), "as given"


def traffic_price(given: str | float | None, prices: Prices) -> float:
    """Dollars per GB: a number, or a destination. By default within a region."""
    if given is None or given in prices.traffic:
        return prices.traffic.get(str(given or "same-region"), 0.0)
    return _dollars(given, "traffic_price", f"or a destination: {', '.join(prices.traffic) or 'this list has none'}")


def _dollars(given: str | float, name: str, other: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise ValueError(f"{name}={given}: give a number of dollars, {other}")
    return value


def _prices(held: Any, name: str) -> Prices:
    values = held if isinstance(held, dict) else {}
    for key in _NUMBERS:
        value = values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise SourceError(f"{name}: {key} must be a number of dollars (got {value!r}); write {_EXAMPLE}")
    numbers = {key: float(values[key]) for key in _NUMBERS}
    what, date = (_printable(values.get(key, other)) for key, other in (("what", name), ("date", "")))
    nodes = values.get("nodes") or {}
    if not isinstance(nodes, dict):
        raise SourceError(f"{name}: nodes must be a table of types of machines (got {nodes!r})")
    about = _printable(f"{nodes.get('what', name)} {nodes.get('date', '')}".strip())
    traffic, hourly = (_table(found, name) for found in (values.get("traffic_per_gb"), nodes.get("per_hour")))
    return Prices(what, date, **numbers, traffic=traffic, nodes=hourly, nodes_what=about)


def _table(held: Any, name: str) -> dict[str, float]:
    """Numbers of dollars by name; there may be none."""
    if held is None:
        return {}
    if not isinstance(held, dict) or not all(isinstance(value, int | float) for value in held.values()):
        raise SourceError(f"{name}: expected a table of names and numbers of dollars (got {held!r})")
    return {_printable(key): float(value) for key, value in held.items()}


def _printable(text: Any) -> str:
    return "".join(filter(str.isprintable, str(text)))
