"""The members of samples: which are a sample's parts, where they lie, and which of them come twice."""

from typing import Any

import numpy as np
import numpy.typing as npt

from corgi2.formats.framed.frames import Hashes, Parts
from corgi2.formats.tar.archive import Archive
from corgi2.formats.tar.names import Names
from corgi2.order import Indices

_KINDS = (np.uint8, np.uint16, np.uint32)


def parts_of(archive: Archive, names: Names, keyed: Indices, records: Indices, first: Indices) -> Parts:
    """Where the members with a key lie, each of which belongs to one of the records that begin with these members."""
    counts, begin = np.bincount(records, minlength=len(first)), archive.body[keyed] - archive.start[first[records]]
    long = archive.long_names
    texts = {n: long[member] for n, member in enumerate(keyed.tolist()) if member in long} if long else {}
    return Parts(_short(counts), _short(begin), _short(archive.size[keyed]), _short(names.cut[keyed]), texts)


def _short(values: Indices) -> npt.NDArray[Any]:
    largest = int(values.max(initial=0))
    return values.astype(next((kind for kind in _KINDS if largest <= np.iinfo(kind).max), np.int64))


def second_members(records: Indices, parts: Hashes) -> Indices:
    """The members, by number, whose name another member of their record has."""
    order = np.lexsort((parts, records))
    twice = np.flatnonzero((np.diff(records[order]) == 0) & (np.diff(parts[order]) == 0))
    return order[twice + 1]
