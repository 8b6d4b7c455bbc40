"""Batches cut from what was taken at once: tables, columns or samples, joined if they lie in two buffers."""

from typing import Any

import numpy as np
import pyarrow as pa

from corgi2.online.portions import Taken


def cut(taken: Taken, has_columns: bool) -> Any:
    """A table, columns, or samples. ``has_columns``: each record has all of them."""
    if isinstance(taken.shared, pa.Table):
        return taken.shared.slice(taken.start, taken.size)
    part = slice(taken.start, taken.start + taken.size)
    if isinstance(taken.shared, list):
        return taken.shared[part]
    batch = {name: values[part] for name, values in taken.shared.items()}
    if has_columns:
        return batch
    # leave out columns that none of its records has, even if others taken along have them
    return {name: values for name, values in batch.items() if any(value is not None for value in values)}


def joined(parts: list[Any]) -> Any:
    """Tables as one, columns, or samples."""
    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts).combine_chunks()
    if isinstance(parts[0], list):
        return [sample for part in parts for sample in part]
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _joined_column([_column(part, name) for part in parts]) for name in names}


def _column(part: dict[str, Any], name: str) -> Any:
    return part[name] if name in part else [None] * len(next(iter(part.values())))


def _joined_column(columns: list[Any]) -> Any:
    if all(isinstance(column, np.ndarray) for column in columns):
        return np.concatenate(columns)
    return [value for column in columns for value in (column.tolist() if isinstance(column, np.ndarray) else column)]
