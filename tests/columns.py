"""Columns of every type that Arrow and Parquet know."""

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tests.shards import ARROW

_DAY = datetime.date(2020, 2, 29)

_TIME = datetime.datetime(2021, 3, 4, 5, 6, 7, 891011)

VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False, None],
    pa.int8(): [-128, 127, None],
    pa.int16(): [-(2**15), 7],
    pa.int32(): [1, None],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.uint8(): [0, 255],
    pa.uint16(): [65535, None],
    pa.uint32(): [2**32 - 1, 1],
    pa.uint64(): [2**64 - 1, None],
    pa.float16(): [np.float16(1.5), None],
    pa.float32(): [1.5, None],
    pa.float64(): [float("inf"), -0.0, None],
    pa.decimal128(20, 3): [decimal.Decimal("-1.250"), None],
    pa.decimal128(5, 1): [decimal.Decimal("1.5"), None],
    pa.decimal256(50, 3): [decimal.Decimal("12345678901234567890123.250"), None],
    pa.date32(): [_DAY, None],
    pa.date64(): [_DAY, None],
    pa.time32("ms"): [datetime.time(1, 2, 3, 4000), None],
    pa.time64("us"): [datetime.time(1, 2, 3, 4), None],
    pa.timestamp("us"): [_TIME, None],
    pa.timestamp("ns"): [_TIME, None],
    pa.timestamp("ms", "Europe/Berlin"): [_TIME.replace(microsecond=0, tzinfo=datetime.UTC), None],
    pa.duration("us"): [datetime.timedelta(seconds=1), None],
    pa.string(): ["", "ä" * 50, None],
    pa.large_string(): ["x", None],
    pa.binary(): [b"", b"\x00\xff", None],
    pa.large_binary(): [b"y", None],
    pa.binary(3): [b"abc", None],
    pa.list_(pa.int32()): [[1, None, 2], [], None],
    pa.large_list(pa.string()): [["a", "b"], [], None],
    pa.list_(pa.float32(), 2): [[1.0, 2.0], [3.0, None], *([None] if ARROW >= 26 else [])],
    pa.struct([("x", pa.int64()), ("y", pa.string())]): [{"x": 1, "y": None}, None],
    pa.list_(pa.struct([("z", pa.list_(pa.string()))])): [[{"z": ["q"]}, {"z": None}], []],
    pa.map_(pa.string(), pa.int32()): [[("k", 1)], [], None],
    pa.dictionary(pa.int32(), pa.string()): ["cat", "dog", None],
    pa.dictionary(pa.int8(), pa.string()): ["cat", "dog", None],
    pa.null(): [None],
}


def column_of(type_: pa.DataType, rows: int, seed: int) -> pa.Array:
    choices = VALUES[type_]
    picks = np.random.default_rng(seed).integers(0, len(choices), rows)
    return pa.array([choices[pick] for pick in picks], type_)
