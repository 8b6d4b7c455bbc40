"""Whether two batches are the same."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def same(value: Any, other: Any) -> bool:
    """Equal in value, type and kind, all the way down."""
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return [*value] == [*other] and all(map(same, value.values(), other.values()))
    if isinstance(value, list | tuple):
        return len(value) == len(other) and all(map(same, value, other))
    if isinstance(value, np.ndarray):
        return _plain(value) == _plain(other)
    if isinstance(value, torch.Tensor):
        return value.dtype == other.dtype and torch.equal(value, other)
    return bool(value == other)


def _plain(array: npt.NDArray[Any]) -> tuple[Any, ...]:
    """An array's shape, kind and content. NumPy's own pickles forget the order of bytes."""
    kind = array.dtype.newbyteorder("=")
    return array.shape, kind, array.tolist() if kind.hasobject else array.astype(kind).tobytes()
