"""Nulls in columns that become arrays: floats hold them as NaN, and all others cannot."""

import pyarrow as pa


def is_number(kind: pa.DataType) -> bool:
    """Whether its values become an array."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_temporal(kind))


def nulls_problem(name: str, kind: str) -> str:
    return (
        f"the column {name!r} of {kind} has nulls, which an array cannot hold; give what stands for them, "
        f"fill={{{name!r}: …}}, or columns=[…] without it, or take batch_format='arrow'"
    )
