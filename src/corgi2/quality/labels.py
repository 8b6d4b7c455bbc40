"""What records are measured by: labels and features, found in their columns by name or by path.

A path leads into structs, objects and JSON that is text or a part of a sample, key by key; into a list by the number of
an element (``tags.0``). A list or an object is not a label by itself, but an element or a key of it is.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from corgi2.formats import split_path

_SHORT = 64
"""The most letters, or bytes, in the values of a label that is recommended."""
_OFTEN = 5
"""The least number of records that share a value, on average, of a label that is recommended."""
_SOUNDS = re.compile(r"cls|class|label|categor|target|kind|lang|source", re.IGNORECASE)
"""Usual names of labels: these are recommended first."""
_DEEP = 4
_NAMED = 5


class LackError(Exception):
    """A record lacks the value to measure by, or has one that cannot be measured."""

    def __init__(self, path: str, row: int, problem: str | None = None) -> None:
        super().__init__(path, row, problem)
        self.path, self.row, self.problem = path, row, problem


def look_up(columns: Mapping[str, Any], path: str) -> Any:
    """The value of each record; a list, or a NumPy array."""
    split = split_path(path, columns)
    if split is None:
        raise LackError(path, 0)
    name, keys = split
    values = columns[name]
    if keys:
        values = [_follow(value, path, keys, row) for row, value in enumerate(values)]
    if isinstance(values, list) and None in values:
        raise LackError(path, values.index(None))
    return values


def look_up_label(columns: Mapping[str, Any], path: str) -> Any:
    """The same, but every value must be a single one."""
    values = look_up(columns, path)
    if isinstance(values, np.ndarray):
        if values.ndim > 1:
            raise LackError(path, 0, _no_label(path, values[0].tolist()))
        return values
    for row, value in enumerate(values):
        if isinstance(value, list | tuple | dict):
            raise LackError(path, row, _no_label(path, value))
    return values


def _no_label(path: str, value: Any) -> str:
    if isinstance(value, dict):
        keys = ", ".join(f"'{path}.{key}'" for key in list(value)[:_NAMED])
        return f"{path!r} is an object, not a label; name a key of it: {keys or 'it has none'}"
    return f"{path!r} is a list, not a label; name an element of it: label='{path}.0'"


def _follow(value: Any, path: str, keys: Sequence[str], row: int) -> Any:
    for place, key in enumerate(keys):
        above = ".".join(path.split(".")[: place - len(keys)])
        value = _opened(value, above, path, row)
        if value is None:
            return None
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal():
            value = value[int(key)] if int(key) < len(value) else None
        elif isinstance(value, list):
            raise LackError(path, row, f"{above!r} is a list, and {key!r} is no element of it; name one: '{above}.0'")
        else:
            raise LackError(path, row, f"{above!r} is {str(value)[:40]!r}, which has no {key!r} inside")
    return value


def _opened(value: Any, above: str, path: str, row: int) -> Any:
    """Text parsed as JSON, and an Arrow map as an object."""
    if isinstance(value, bytes | str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            problem = f"{above!r} is not JSON ({error}): {value[:40]!r}; a path leads further only into JSON"
            raise LackError(path, row, problem) from error
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value


def paths_of(sample: Any) -> Iterator[tuple[str, Any]]:
    """Everything in a record that a path can name, and its value."""
    found = sample if isinstance(sample, Mapping) else {"value": sample}
    yield from _below("", {key: value for key, value in found.items() if not str(key).startswith("__")}, _DEEP)


def _below(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bytes | str) and value[:1] in (b"{", "{"):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if not isinstance(value, dict) or not value or not depth:
        yield path, value
        return
    for key, inner in value.items():
        yield from _below(f"{path}.{key}" if path else str(key), inner, depth - 1)


def telling_labels(blocks: Iterable[Iterable[Any]]) -> tuple[str, ...]:
    """The paths to values that all records of some blocks have and many of them share, but not all. Those in which
    blocks differ most come first; of those that differ alike, what sounds like a label, and what has the fewest
    values."""
    seen, sizes = _values_seen(blocks)
    found = []
    for path, held in seen.items():
        values = set[Any]().union(*held)
        is_whole = [counts.total() for counts in held] == sizes
        if is_whole and None not in values and 1 < len(values) <= sum(sizes) / _OFTEN:
            found.append((-_doublings(held), not _SOUNDS.search(path), len(values), path))
    return tuple(path for *_, path in sorted(found)[:_NAMED])


def _values_seen(blocks: Iterable[Iterable[Any]]) -> tuple[dict[str, list[Counter[Any]]], list[int]]:
    """How often each value is in each block, by path, None for all that is long; and the records of the blocks."""
    seen: dict[str, list[Counter[Any]]] = {}
    sizes: list[int] = []
    for samples in blocks:
        sizes.append(0)
        for sample in samples:
            sizes[-1] += 1
            for path, value in paths_of(sample):
                held = seen.setdefault(path, [])
                held += [Counter() for _ in range(len(sizes) - len(held))]
                held[-1][value if _is_short(value) else None] += 1
    return seen, sizes


def _doublings(blocks: Sequence[Counter[Any]]) -> int:
    """How often h of some records of each block is twice that of a full shuffle, about: less is luck."""
    total: Counter[Any] = sum(blocks, Counter())
    records = total.total()
    middle = sum((count / records) ** 2 for count in total.values())
    within = sum(sum(count**2 for count in block.values()) / block.total() for block in blocks) / records
    h = (within - middle) / (1 - middle) * records / max(1, len(blocks) - 1)
    return max(0, round(math.log2(max(1.0, h))))


def _is_short(value: Any) -> bool:
    if isinstance(value, bytes):
        return len(value) <= _SHORT and value.isascii()
    return (isinstance(value, str) and len(value) <= _SHORT) or isinstance(value, bool | int | float)
