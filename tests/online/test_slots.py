"""Batches through slots of shared memory: what comes out is what went in, for as long as it is kept."""

import gc
import itertools
import os
import pickle
import signal
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from corgi2.online import Packed, Ring, unpack
from corgi2.torch import CorgiDataset
from corgi2.torch.handing import TENSORS
from tests.batches import same
from tests.shards import parquet_of
from tests.sources import write_source

pytestmark = [pytest.mark.filterwarnings("ignore:This DataLoader will create")]
SLOT_BYTES = 1 << 20
SLOW = pytest.mark.slow
METHODS = ["fork", *(pytest.param(name, marks=SLOW) for name in ("spawn", "forkserver"))]


class Pair(NamedTuple):
    first: Any
    second: Any


class Handing(IterableDataset[Any]):
    """A data set whose workers hand over its batches in slots."""

    def __init__(self, batches: Any, rings: list[Ring]) -> None:
        self.batches, self.rings = batches, rings

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        return map(self.rings[info.id].pack, self.batches)


class Numbered:
    """Batches of which each tells its number in every byte."""

    def __init__(self, count: int, size: int = 1000, dies_at: int = -1) -> None:
        self.count, self.size, self.dies_at = count, size, dies_at

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.count):
            if number == self.dies_at:
                ring = _own_ring()
                start = ring.start_of(ring.memory.find(b"\0", 0, ring.slots))
                ring.memory[start : start + 500] = b"\xff" * 500
                os.kill(os.getpid(), signal.SIGKILL)
            yield _numbered(number, self.size)


def _own_ring() -> Ring:
    info = get_worker_info()
    assert info is not None
    ring: Ring = info.dataset.rings[info.id]  # type: ignore[attr-defined]
    return ring


def _numbered(number: int, size: int) -> dict[str, Any]:
    value = number % 250
    return {
        "array": np.full(size, value, np.uint8),
        "tensor": torch.full((size,), value, dtype=torch.uint8),
        "bytes": [bytes([value]) * size, b""],
        "texts": [f"é{number}", None],
        "number": number,
    }


def _as_it_is(batch: Any) -> Any:
    return batch


def _loader(batches: Any, slots: int = 4, workers: int = 2, slot_bytes: int = SLOT_BYTES, **options: Any) -> Any:
    rings = [Ring(slots, slot_bytes, TENSORS) for _ in range(workers)]
    return DataLoader(Handing(batches, rings), None, num_workers=workers, collate_fn=_as_it_is, **options)


def _sent(packed: Any) -> Any:
    return pickle.loads(pickle.dumps(packed))  # noqa: S301


def _taken(ring: Ring) -> int:
    return sum(ring.memory[: ring.slots])


columns = st.one_of(
    arrays.arrays(
        st.one_of(
            arrays.scalar_dtypes(),
            arrays.datetime64_dtypes(),
            st.just(np.dtype([("a", "<i2"), ("b", ">f8", (2,))])),
        ),
        arrays.array_shapes(min_dims=0, min_side=0, max_side=4),
    ),
    st.lists(st.binary(max_size=9)),
    st.lists(st.text(string.printable + "é\ud800\U0001f415", max_size=9)),
    st.lists(st.none() | st.binary(max_size=9)),
    st.lists(st.none() | st.text(max_size=9)),
    st.lists(st.integers() | st.binary(max_size=3) | st.none()),
    st.lists(arrays.arrays(np.float32, 3), max_size=3),
    st.builds(lambda number: torch.arange(number), st.integers(0, 9)),
    st.builds(lambda values: np.array([*values, None], object), st.lists(st.text(), max_size=3)),
    st.builds(lambda columns: pa.table({"a": columns}), st.lists(st.none() | st.binary(max_size=9))),
    st.integers(),
    st.none(),
)
batches = st.one_of(
    columns,
    st.dictionaries(st.text(max_size=5), columns, max_size=4),
    st.builds(Pair, columns, st.dictionaries(st.text(max_size=5), columns, max_size=2)),
    st.tuples(columns, columns, st.lists(st.integers())),
)


@given(st.lists(batches, min_size=1, max_size=4))
def test_a_batch_comes_out_as_it_went_in_and_its_slot_is_free_once_it_is_gone(given: list[Any]) -> None:
    ring = Ring(2, SLOT_BYTES, TENSORS)
    packed = [ring.pack(batch) for batch in given]
    assert sum(isinstance(batch, Packed) for batch in packed) == _taken(ring) <= 2
    out = [unpack(_sent(batch)) for batch in packed]
    del packed
    assert all(map(same, out, given))
    assert _taken(ring) <= 2
    del out
    assert _taken(ring) == 0


def test_arrays_lie_over_the_slot_and_may_be_written_to_and_lists_are_their_own() -> None:
    ring = Ring(2, SLOT_BYTES, TENSORS)
    batch = unpack(_sent(ring.pack({"a": np.arange(6.0), "t": torch.arange(6), "b": [b"x"]})))
    batch["a"] += 1
    batch["t"] *= 2
    assert batch["a"].tolist() == [1, 2, 3, 4, 5, 6]
    assert batch["t"].tolist() == [0, 2, 4, 6, 8, 10]
    view = batch["t"].view(2, 3)[1:]
    del batch
    assert _taken(ring) == 1
    assert view.tolist() == [[6, 8, 10]]
    del view
    assert _taken(ring) == 0
    texts = unpack(_sent(ring.pack({"b": [b"x"]})))
    assert _taken(ring) == 0
    assert texts == {"b": [b"x"]}


def test_a_view_outlives_the_ring() -> None:
    ring = Ring(2, SLOT_BYTES)
    array = unpack(_sent(ring.pack({"a": np.arange(9)})))["a"]
    late = pickle.dumps(ring.pack({"a": np.arange(9)}))
    del ring
    assert array.tolist() == [*range(9)]
    with pytest.raises(RuntimeError, match="another process"):
        unpack(pickle.loads(late))  # noqa: S301


@pytest.mark.parametrize("drop", [_as_it_is, pickle.dumps, _sent])
def test_a_batch_that_is_dropped_on_its_way_frees_its_slot_unless_it_is_in_the_pipe(drop: Callable[[Any], Any]) -> None:
    ring = Ring(1, SLOT_BYTES)
    drop(ring.pack({"a": np.arange(9)}))
    assert _taken(ring) == (drop is pickle.dumps)


def test_what_finds_no_slot_or_no_room_goes_as_it_is() -> None:
    ring, batch = Ring(1, 4096), {"a": np.arange(9)}
    large, plain = {"b": [b"x" * 4097]}, {"a": [1, 2, 3]}
    assert ring.pack(large) is large
    assert ring.pack(plain) is plain
    kept = unpack(_sent(ring.pack(batch)))
    assert ring.pack(batch) is batch
    assert same(kept, batch)
    assert ring.bytes == 4096


def test_a_ring_goes_nowhere_but_to_its_worker() -> None:
    with pytest.raises(TypeError, match="the worker that is being started"):
        pickle.dumps(Ring(1, 4096))


def test_a_slice_of_a_table_takes_no_more_than_its_rows() -> None:
    ring = Ring(1, SLOT_BYTES)
    table = pa.table({"a": [b"x" * 1000] * 10_000}).slice(5000, 100)
    packed = ring.pack(table)
    assert isinstance(packed, Packed)
    out = unpack(_sent(packed))
    del packed
    assert out.equals(table)
    assert _taken(ring) == 1
    del out
    assert _taken(ring) == 0


@pytest.mark.parametrize("method", METHODS)
def test_batches_that_are_all_kept_stay_as_they_are(method: str) -> None:
    """There are more of them than slots: the others are torch's own."""
    loader = _loader(Numbered(20), multiprocessing_context=method)
    raw = list(loader)
    kept = [unpack(batch) for batch in raw]
    assert sum(isinstance(batch, Packed) for batch in raw) == 8
    assert sorted(batch["number"] for batch in kept) == sorted([*range(20)] * 2)
    assert all(same(batch, _numbered(batch["number"], 1000)) for batch in kept)


def test_batches_that_are_let_go_of_leave_their_slots_to_others() -> None:
    """A slot for each batch on its way, one that is looked at, one to spare."""
    count = 0
    for raw in _loader(Numbered(200), prefetch_factor=2):
        assert isinstance(raw, Packed)
        batch = unpack(raw)
        assert same(batch, _numbered(batch["number"], 1000))
        count += 1
        del raw, batch
    assert count == 400


def test_a_batch_that_is_too_large_for_a_slot_comes_all_the_same() -> None:
    loader = _loader(Numbered(3, 50_000), slot_bytes=4096)
    assert [same(unpack(batch), _numbered(number // 2, 50_000)) for number, batch in enumerate(loader)] == [True] * 6


def test_two_iterations_at_once_keep_apart() -> None:
    loaders = [_loader(Numbered(30)) for _ in range(2)]
    for first, second in zip(*loaders, strict=True):
        one, other = unpack(first), unpack(second)
        one["array"][:] = 255
        assert same(other, _numbered(other["number"], 1000))


@pytest.mark.parametrize("persistent", [False, True])
def test_an_iteration_that_is_left_early_takes_no_slot_from_the_next(persistent: bool) -> None:
    loader = _loader(Numbered(50), persistent_workers=persistent)
    for _ in range(5):
        kept = [unpack(batch) for batch in itertools.islice(loader, 3)]
        assert all(same(batch, _numbered(batch["number"], 1000)) for batch in kept)
        del kept
        if not persistent:
            loader.dataset.rings[:] = [Ring(4, SLOT_BYTES, TENSORS) for _ in range(2)]
    last = [(isinstance(raw, Packed), unpack(raw)) for raw in itertools.islice(loader, 2)]
    assert [is_packed for is_packed, _ in last] == [True, True]


def test_a_worker_that_is_killed_in_mid_write_spoils_nothing_that_was_handed_over() -> None:
    loader, kept = _loader(Numbered(50, dies_at=20), workers=1, slots=50), list[Any]()
    with pytest.raises(RuntimeError, match="exited unexpectedly|killed by signal"):
        kept.extend(map(unpack, loader))
    assert all(same(batch, _numbered(number, 1000)) for number, batch in enumerate(kept))
    loader.dataset.batches = Numbered(5)
    loader.dataset.rings[:] = [Ring(8, SLOT_BYTES, TENSORS)]
    assert [unpack(raw)["number"] for raw in loader] == [*range(5)]


def _open_memory() -> tuple[int, int]:
    """Descriptors, and mappings of rings."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    return len(list(Path("/proc/self/fd").iterdir())), maps.count("memfd:corgi2")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="counts them by /proc")
def test_many_iterations_leave_no_descriptor_and_no_memory() -> None:
    def iterate(count: int) -> None:
        for stop in [3, None] * count:
            batches = [unpack(raw) for raw in itertools.islice(_loader(Numbered(6), workers=1), stop)]
            assert len(batches) == (stop or 6)

    iterate(1)
    before = _open_memory()
    iterate(5)
    assert _open_memory() == before


@pytest.mark.parametrize(
    ("suffix", "method"),
    [
        *((suffix, "fork") for suffix in (".tar", ".parquet", ".jsonl", "arrow")),
        pytest.param(".tar", "spawn", marks=SLOW),
    ],
)
def test_a_data_set_comes_through_slots_as_through_the_pipe(suffix: str, method: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"buffer_blocks": 2, "batch_size": 5}
    if suffix == "arrow":
        suffix, options["batch_format"] = ".parquet", "arrow"
    write_source(tmp_path / "in", suffix, [13, 7, 20, 9, 12])
    plain = DataLoader(CorgiDataset(tmp_path / "in", **options), None, num_workers=2, collate_fn=_as_it_is)
    raw = list(_loader(CorgiDataset(tmp_path / "in", **options), 20, multiprocessing_context=method))
    assert all(isinstance(batch, Packed) for batch in raw)
    assert all(map(same, map(unpack, raw), plain))
    assert len(raw) == 13


def test_columns_of_numbers_come_through_slots_as_tensors(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = {"n": pa.array(range(20)), "m": pa.array([[n, n] for n in range(20)], pa.list_(pa.float32(), 2))}
    (tmp_path / "in/0.parquet").write_bytes(parquet_of(pa.table(rows)))
    dataset = CorgiDataset(tmp_path / "in", batch_size=5, shuffle=False)
    out = [unpack(raw) for raw in _loader(dataset, workers=1)]
    assert torch.equal(torch.cat([batch["n"] for batch in out]), torch.arange(20))
    assert all(batch["m"].shape == (5, 2) and batch["m"].dtype == torch.float32 for batch in out)
