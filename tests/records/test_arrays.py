"""Arrow arrays of plain values are those that Arrow makes, and NumPy's are those that it gives back."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2.records import arrays
from corgi2.records.arrays import number_array, numpy_of, value_table

SCHEMA = pa.schema(
    [("i", pa.int32()), ("b", pa.bool_()), ("s", pa.string()), ("d", pa.binary()), ("l", pa.list_(pa.int32()))]
)
NUMBERS = st.integers(-(1 << 31), (1 << 31) - 1)
ROWS = st.lists(st.tuples(NUMBERS, st.booleans(), st.text(), st.binary(), st.lists(NUMBERS)))


@given(ROWS)
def test_tables_of_values_are_those_that_arrow_makes(rows: list[tuple[Any, ...]]) -> None:
    columns = [[row[number] for row in rows] for number in range(5)]
    made = value_table(columns, SCHEMA)
    made.validate(full=True)
    assert made.equals(pa.table(columns, schema=SCHEMA))


def test_texts_that_are_too_long_for_one_array_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_LONGEST", 100)
    texts = ["ä" * 7 * (number % 5) for number in range(50)]
    made = value_table([texts], pa.schema([("s", pa.string())])).column(0)
    assert made.num_chunks > 5
    assert made.to_pylist() == texts


@given(
    st.lists(st.lists(st.integers(0, 100), max_size=30), max_size=4),
    st.integers(0, 40),
    st.sampled_from(["int8", "uint16", "int64", "uint64", "float16", "float32", "float64", "bool"]),
)
def test_numbers_and_booleans_come_back_wherever_they_begin(parts: list[list[int]], skip: int, name: str) -> None:
    kind = pa.from_numpy_dtype(np.dtype(name))
    lists = [np.array(part, np.int64) % (2 if name == "bool" else 101) for part in parts]
    array = pa.chunked_array([pa.array(part.astype(name)) for part in lists], kind)
    for each in (array.slice(skip), *(chunk.slice(skip) for chunk in array.chunks)):
        found = numpy_of(each)
        assert found.dtype == np.dtype(name)
        assert found.tolist() == each.to_pylist()


@pytest.mark.parametrize("values", [np.array([True]), np.array([1], ">i4"), np.array(["a"])], ids=str)
def test_what_is_no_number_as_it_lies_is_refused(values: Any) -> None:
    with pytest.raises(TypeError, match="expected numbers in native byte order, not"):
        number_array(values)


def test_numbers_with_gaps_between_them_are_numbers() -> None:
    assert number_array(np.arange(10)[::3]).to_pylist() == [0, 3, 6, 9]
