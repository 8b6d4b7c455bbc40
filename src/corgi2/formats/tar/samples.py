"""Samples of a tar decoded: the parts of each record as bytes, under their names."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from corgi2.errors import ShardError
from corgi2.formats.framed.frames import Lying, Parts
from corgi2.formats.paths import is_asked
from corgi2.formats.tar.headers import NAME_BYTES, UNIT
from corgi2.order import Indices

_RESERVED = {"__key__", "__url__"}

_WORD = 16
"""Bytes of a part's name that are compared at once, including the zero after it."""


class Samples:
    """Looks up where the parts of samples lie, and copies each part once, into its own object."""

    def __init__(self, lying: Lying, parts: Parts) -> None:
        self._lying, self._parts = lying, parts
        counts = parts.counts
        self._each = int(counts[0]) if len(counts) and (counts == counts[0]).all() else 0
        self._first = None if self._each else np.cumsum(counts, dtype=np.int64) - counts

    def samples(self, records: Indices) -> Iterator[dict[str, Any]]:
        columns = self.columns(records)
        names = ("__key__", "__url__", *(name for name in columns if name != "__key__"))
        parts = [values for name, values in columns.items() if name != "__key__"]
        whole = not any(None in values for values in parts)
        for row in zip(columns["__key__"], self._lying.shards(records), *parts, strict=True):
            pairs = zip(names, row, strict=True)
            yield dict(pairs) if whole else {name: value for name, value in pairs if value is not None}

    def columns(self, records: Indices, only: Collection[str] | None = None) -> dict[str, list[Any]]:
        each = 0 if self._parts.names or not len(records) else self._each
        return (self._alike(records, each, only) if each else None) or self._various(records, only)

    def _alike(self, records: Indices, each: int, only: Collection[str] | None) -> dict[str, list[Any]] | None:
        """Columns of samples whose parts have the same names in the same order; None if some differ."""
        memory, place = self._lying.memory, (records * each)[:, None] + np.arange(each)
        cut = self._parts.cut[place].astype(np.int64)
        begin = self._lying.starts(records)[:, None] + self._parts.begin[place]
        header = begin - UNIT
        if int(cut.max()) + 1 + _WORD > NAME_BYTES:
            return None
        words = np.ndarray(len(memory) - _WORD + 1, f"V{_WORD}", memory, strides=(1,))[header + cut + 1]
        texts = [word.partition(b"\0") for word in words[0].tolist()]
        names = [name.decode().lower() for name, end, _ in texts if end]
        if len(set(names) - _RESERVED) < each or (words.view(np.uint64) != words[:1].view(np.uint64)).any():
            return None
        keys = zip(header[:, 0].tolist(), (header + cut)[:, 0].tolist(), strict=True)
        columns: dict[str, list[Any]] = {"__key__": [memory[start:stop].decode() for start, stop in keys]}
        end = begin + self._parts.size[place]
        for number, name in enumerate(names):
            if is_asked(name, only):
                spans = zip(begin[:, number].tolist(), end[:, number].tolist(), strict=True)
                columns[name] = [memory[start:stop] for start, stop in spans]
        return columns

    def _various(self, records: Indices, only: Collection[str] | None) -> dict[str, list[Any]]:
        """Columns of any samples. As in WebDataset, the last of parts with equal names counts."""
        parts, memory, count = self._parts, self._lying.memory, len(records)
        counts = parts.counts[records].astype(np.int64)
        first = records * self._each if self._first is None else self._first[records]
        place = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
        begin = np.repeat(self._lying.starts(records), counts) + parts.begin[place]
        row = np.repeat(np.arange(count), counts)
        columns: dict[str, list[Any]] = {"__key__": [None] * count}
        numbers = (place, row, parts.cut[place], begin, begin + parts.size[place])
        for part, sample, cut, start, stop in zip(*(array.tolist() for array in numbers), strict=True):
            text = parts.names.get(part) or memory[start - UNIT : start - UNIT + NAME_BYTES].partition(b"\0")[0]
            name = text[cut + 1 :].decode().lower()
            if name in _RESERVED:
                problem = f"a member {text.decode()!r}, a name that WebDataset reserves"
                raise ShardError(*self._lying.where(start - UNIT), problem)
            columns["__key__"][sample] = text[:cut].decode()
            if is_asked(name, only):
                columns.setdefault(name, [None] * count)[sample] = memory[start:stop]
        return columns
