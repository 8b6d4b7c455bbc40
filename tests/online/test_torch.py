"""For PyTorch: what the loader promises, through real DataLoaders, workers, process groups and killed trainings."""

import copy
import gc
import inspect
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader

import corgi2
from corgi2.errors import SourceError
from corgi2.torch import CorgiDataset
from tests.shards import parquet_of
from tests.sources import write_source
from tests.torch_train import Order, Run, Training, loader_of, result_of, texts

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than this machine has cores
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # by torchdata
]
COUNTS = [13, 7, 20, 9, 12]
EVERY = sorted(f"{shard} {number}" for shard, count in enumerate(COUNTS) for number in range(count))
BATCHES = 13
"""Of 5 examples, but for the last."""
WORKERS = [pytest.param(0, None, id="alone"), pytest.param(2, "fork", id="2 forked"), pytest.param(3, "fork", id="3")]
SPAWNED = pytest.param(2, "spawn", id="2 spawned", marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torch") / "in"
    write_source(folder, ".parquet", COUNTS)
    return folder


def _dataset(source: Path, **settings: Any) -> CorgiDataset:
    return CorgiDataset(source, **{"buffer_blocks": 2, "batch_size": 5} | settings)


def test_it_takes_the_arguments_of_the_loader_and_each_is_explained() -> None:
    signature = inspect.signature(CorgiDataset)
    assert signature == inspect.signature(corgi2.Loader)
    explained = inspect.getdoc(CorgiDataset.__init__) or ""
    assert [name for name in signature.parameters if f"{name}: " not in explained] == []
    with pytest.raises(TypeError, match=r"CorgiDataset\(\) has no argument 'bufer'; did you mean 'buffer'"):
        CorgiDataset("folder", bufer="1GB")  # type: ignore[call-arg]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_first_iteration_gives_the_epoch_that_is_given(source: Path, workers: int) -> None:
    given, told = _dataset(source, epoch=3), _dataset(source)
    told.set_epoch(3)
    for _ in range(2):
        assert _read(loader_of(given, workers)) == _read(loader_of(told, workers))


def _read(batches: Iterable[Any]) -> list[list[str]]:
    return [texts(batch) for batch in batches]


def _first(batches: Iterable[Any], count: int) -> list[list[str]]:
    return _read(itertools.islice(batches, count))


def _flat(batches: Iterable[list[str]]) -> list[str]:
    return [text for batch in batches for text in batch]


def _epochs(source: Path, workers: int, epochs: Iterable[int], **settings: Any) -> list[list[list[str]]]:
    """Whole epochs, each named to a data set of its own."""
    orders = []
    for epoch in epochs:
        dataset = _dataset(source, **settings)
        dataset.set_epoch(epoch)
        orders.append(_read(loader_of(dataset, workers)))
    return orders


def _refused(loader: Iterable[Any], kind: type[Exception], words: str) -> str:
    """What reading it raises. The frames that hold its workers go at once, and so do these."""
    with pytest.raises(kind, match=words) as refusal:
        list(loader)
    traceback.clear_frames(refusal.tb)
    return f"{refusal.type.__name__} {refusal.value}"


def _saved(state: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from a checkpoint in JSON."""
    loaded: dict[str, Any] = json.loads(json.dumps(state))
    return loaded


@pytest.mark.parametrize(("workers", "method"), [*WORKERS, SPAWNED])
def test_an_epoch_gives_every_example_once_in_batches_of_which_one_is_short(
    workers: int, method: str | None, source: Path
) -> None:
    loader = loader_of(_dataset(source), workers, method, persistent_workers=workers > 0)
    for _ in range(2):
        batches = _read(loader)
        assert sorted(_flat(batches)) == EVERY
        assert len(batches) == len(loader) == BATCHES
        assert sorted(map(len, batches)) == [1] + [5] * (BATCHES - 1)


@pytest.mark.parametrize(("workers", "method"), WORKERS)
def test_samples_are_batched_by_the_data_loader(workers: int, method: str | None, source: Path) -> None:
    dataset = _dataset(source, batch_size=None)
    loader = loader_of(dataset, workers, method, batch_size=8)
    batches = _read(loader)
    assert sorted(_flat(batches)) == EVERY
    assert len(dataset) == len(EVERY)
    assert len(batches) - len(loader) < max(1, workers)
    assert sum(len(batch) < 8 for batch in batches) <= max(1, workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_each_rank_has_at_most_one_short_batch_and_as_many_as_the_others(workers: int, source: Path) -> None:
    loaders = [loader_of(_dataset(source, rank=rank, world_size=2), workers) for rank in range(2)]
    ranks = [_read(loader) for loader in loaders]
    assert [sum(len(batch) < 5 for batch in batches) for batches in ranks] == [0, 0]
    assert [len(batches) for batches in ranks] == list(map(len, loaders)) == [6, 6]
    assert max(Counter(_flat(ranks[0] + ranks[1])).values()) == 1


@pytest.mark.parametrize(
    ("workers", "method", "persistent"),
    [
        (0, None, False),
        (2, "fork", False),
        (2, "fork", True),
        pytest.param(1, "spawn", False, marks=pytest.mark.slow),
    ],
)
def test_every_iteration_is_the_next_epoch_and_set_epoch_overrides_it(
    workers: int, method: str | None, persistent: bool, source: Path
) -> None:
    first, second, seventh = _epochs(source, workers, [0, 1, 7])
    assert len({str(order) for order in (first, second, seventh)}) == 3
    dataset = _dataset(source)
    loader = loader_of(dataset, workers, method, persistent_workers=persistent)
    assert _read(loader) == first
    assert _read(loader) == second
    if method != "spawn":  # which has shown by now that it counts, and takes its time
        dataset.set_epoch(7)
        assert _read(loader) == seventh
        assert [_read(loader)] == _epochs(source, workers, [8])
        dataset.set_epoch(0)
        assert _read(loader) == first


@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_that_are_left_early_count(persistent: bool, source: Path) -> None:
    loader = loader_of(_dataset(source), 2, persistent_workers=persistent)
    expected = _epochs(source, 2, [0, 1, 2])
    assert [_first(loader, 1), _first(loader, 3)] == [expected[0][:1], expected[1][:3]]
    assert _read(loader) == expected[2]


def test_a_look_at_the_data_set_itself_is_an_epoch_for_all_workers(source: Path) -> None:
    dataset = _dataset(source)
    next(iter(dataset))
    assert [_read(loader_of(dataset, 2))] == _epochs(source, 2, [1])


def test_epochs_advance_when_the_number_of_workers_changes(source: Path) -> None:
    dataset = _dataset(source)
    for epoch, workers in enumerate([2, 3, 0, 2]):
        assert [_read(loader_of(dataset, workers))] == _epochs(source, workers, [epoch])


class _Late(CorgiDataset):
    """Its second worker takes its time to begin, and with ``all_late`` every one does."""

    all_late = False

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        if info is not None and (self.all_late or info.id == 1):
            time.sleep(0.3)
        return super().__iter__()


@pytest.mark.parametrize(
    ("workers", "method", "persistent"),
    [
        (2, "fork", False),
        (2, "fork", True),
        (3, "fork", True),
        pytest.param(2, "spawn", True, marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_begins_late_is_in_the_epoch_of_all_others(
    workers: int, method: str, persistent: bool, source: Path
) -> None:
    dataset = _Late(source, buffer_blocks=2, batch_size=5)
    loader = loader_of(dataset, workers, method, persistent_workers=persistent)
    expected = _epochs(source, workers, [0, 1])
    assert _first(loader, 1) == expected[0][:1]
    dataset.set_epoch(0)
    assert [_read(loader), _read(loader)] == expected


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_an_iteration_that_was_asked_for_keeps_its_epoch_whatever_is_set_before_it_begins(
    method: str, source: Path
) -> None:
    dataset = _Late(source, buffer_blocks=2, batch_size=5)
    dataset.all_late = True
    loader = loader_of(dataset, 2, method)
    batches = iter(loader)
    dataset.set_epoch(7)
    assert [_read(batches), _read(loader)] == _epochs(source, 2, [0, 7])


def _set_epoch_in_worker(worker: int) -> None:
    time.sleep(0.2 * worker)
    info: Any = get_worker_info()
    info.dataset.set_epoch(5)


def test_an_epoch_that_every_worker_sets_for_itself_is_that_of_one_iteration(source: Path) -> None:
    dataset = _dataset(source)
    got = [_read(loader_of(dataset, 2, worker_init_fn=init)) for init in (_set_epoch_in_worker, None)]
    assert got == _epochs(source, 2, [5, 6])


def _end_second(worker: int) -> None:
    if worker == 1:
        os._exit(0)


@pytest.mark.parametrize("seeds", [[0, 1, 2], [0, 0, 0]], ids=["other seeds", "the same seed"])
def test_a_worker_that_ends_before_it_begins_leaves_the_others_in_step(seeds: list[int], source: Path) -> None:
    dataset = _dataset(source)
    expected = _epochs(source, 2, [0, 1, 2])
    torch.manual_seed(seeds[0])
    assert _first(loader_of(dataset, 2, worker_init_fn=_end_second), 1) == expected[0][:1]
    late = copy.copy(dataset)
    late.__class__ = _Late
    for seed, epoch in zip(seeds[1:], expected[1:], strict=True):
        torch.manual_seed(seed)
        assert _read(loader_of(late, 2)) == epoch


@pytest.mark.parametrize(
    ("workers", "method", "persistent"),
    [
        (0, None, False),
        (2, "fork", False),
        (3, "fork", False),
        (2, "fork", True),
        pytest.param(2, "spawn", False, marks=pytest.mark.slow),
    ],
)
def test_epochs_advance_though_every_one_sets_the_same_seed(
    workers: int, method: str | None, persistent: bool, source: Path
) -> None:
    loader = loader_of(_dataset(source), workers, method, persistent_workers=persistent)
    for epoch in _epochs(source, workers, [0, 1] if method == "spawn" else [0, 1, 2]):
        torch.manual_seed(0)
        assert _read(loader) == epoch


def test_epochs_advance_under_one_seed_where_torch_hides_its_pipes(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corgi2.torch.dataset.answering_pipe", lambda: 0)
    dataset = _dataset(source)
    for epoch in _epochs(source, 2, [0, 1, 2]):
        torch.manual_seed(0)
        assert _read(loader_of(dataset, 2)) == epoch


def _delay_second(worker: int) -> None:
    time.sleep(0.5 * worker)


@pytest.mark.parametrize("same_seed", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_two_loaders_that_take_turns_give_an_epoch_each(workers: int, same_seed: bool, source: Path) -> None:
    dataset, iterators = _dataset(source), []
    for delay in (_delay_second, None):
        if same_seed:
            torch.manual_seed(0)
        iterators.append(iter(loader_of(dataset, workers, worker_init_fn=delay)))
    pairs = list(zip(*iterators, strict=True))
    got = [_read(pair[number] for pair in pairs) for number in range(2)]
    assert sorted(got) == sorted(_epochs(source, workers, [0, 1]))


def _put_epochs(dataset: CorgiDataset, workers: int, results: Any) -> None:
    results.put([_read(loader_of(dataset, workers)) for _ in range(2)])


@pytest.mark.parametrize(
    ("workers", "method"), [(0, "fork"), (2, "fork"), pytest.param(0, "spawn", marks=pytest.mark.slow)]
)
def test_processes_that_are_handed_one_data_set_count_each_for_itself(workers: int, method: str, source: Path) -> None:
    """As ranks are."""
    context: Any = multiprocessing.get_context(method)
    dataset = _dataset(source)
    dataset.set_epoch(3)
    results = context.SimpleQueue()
    processes = [context.Process(target=_put_epochs, args=(dataset, workers, results)) for _ in range(2)]
    for process in processes:
        process.start()
    expected = _epochs(source, workers, [3, 4])
    assert [results.get() for _ in processes] == [expected, expected]
    for process in processes:
        process.join()
    assert [_read(loader_of(dataset, workers)) for _ in range(2)] == expected


def test_a_data_set_that_goes_leaves_no_file_open(source: Path) -> None:
    def read_a_copy() -> int:
        _read(loader_of(copy.deepcopy(_dataset(source)), 2))
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    assert read_a_copy() == read_a_copy()


def _pickled(dataset: CorgiDataset) -> Any:
    return pickle.loads(pickle.dumps(dataset))  # noqa: S301


@pytest.mark.parametrize("copied", [copy.deepcopy, _pickled], ids=["copied", "pickled"])
def test_a_copy_goes_on_for_itself(copied: Any, source: Path) -> None:
    dataset = _dataset(source)
    _read(loader_of(dataset, 2))
    twin = copied(dataset)
    expected = _epochs(source, 2, [1, 2])
    assert [_read(loader_of(twin, 2)), _read(loader_of(twin, 2))] == expected
    assert [_read(loader_of(dataset, 2)), _read(loader_of(dataset, 2))] == expected


def test_a_data_set_made_before_its_ranks_finds_them(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.multiprocessing.spawn(train, args=(dataset,)) hands it over."""
    dataset = _dataset(source)
    sent = pickle.dumps(dataset)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [len(dataset), len(pickle.loads(sent))] == [6, 6]  # noqa: S301


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    columns = {
        "n": pa.array(range(20), pa.int32()),
        "u": pa.array(range(20), pa.uint8()),
        "x": pa.array([n / 2 for n in range(20)], pa.float32()),
        "flag": [n % 2 == 0 for n in range(20)],
        "vector": pa.array([[n, n + 1] for n in range(20)], pa.list_(pa.float64(), 2)),
        "t": [f"text {n}" for n in range(20)],
    }
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(parquet_of(pa.table(columns)))
    return tmp_path / "in"


@pytest.mark.parametrize("workers", [0, 2])
def test_numbers_come_as_tensors_of_their_own_and_texts_as_lists(workers: int, numbers: Path) -> None:
    for batch in loader_of(CorgiDataset(numbers, batch_size=4), workers):
        kinds = {name: value.dtype for name, value in batch.items() if isinstance(value, torch.Tensor)}
        assert kinds == {
            "n": torch.int32,
            "u": torch.uint8,
            "x": torch.float32,
            "flag": torch.bool,
            "vector": torch.float64,
        }
        assert batch["vector"].shape == (4, 2)
        assert batch["t"] == [f"text {n}" for n in batch["n"].tolist()]
        assert batch["x"].tolist() == [n / 2 for n in batch["n"].tolist()]
        for name in ("n", "x", "vector", "u", "flag"):
            batch[name].zero_()


def _with_sum(batch: dict[str, Any]) -> dict[str, Any]:
    assert isinstance(batch["x"], torch.Tensor)
    return batch | {"sum": batch["x"] + batch["n"]}


def _only_number(sample: dict[str, Any]) -> int:
    return int(sample["n"])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_gets_batches_of_tensors_or_samples(workers: int, numbers: Path) -> None:
    batches = list(loader_of(CorgiDataset(numbers, batch_size=4, transform=_with_sum), workers))
    assert sorted(number for batch in batches for number in batch["sum"].tolist()) == [1.5 * n for n in range(20)]
    samples = loader_of(CorgiDataset(numbers, transform=_only_number), workers, batch_size=4)
    assert sorted(number for batch in samples for number in batch.tolist()) == list(range(20))


@pytest.mark.parametrize("cut", [0, 1, 7, BATCHES])
def test_without_workers_resumed_equals_uninterrupted(cut: int, source: Path) -> None:
    dataset = _dataset(source)
    whole, after = _epochs(source, 0, [3, 4])
    dataset.set_epoch(3)
    batches = iter(loader_of(dataset, 0))
    got = _first(batches, cut)
    fresh = _dataset(source)
    fresh.load_state_dict(_saved(dataset.state_dict()))
    loader = loader_of(fresh, 0)
    assert got + _read(loader) == whole
    assert _read(loader) == after


@pytest.mark.parametrize("cut", [1, 5])
def test_samples_without_workers_resumed_equal_uninterrupted(cut: int, source: Path) -> None:
    (whole,) = [_read(loader_of(_dataset(source, batch_size=None), 0, batch_size=8))]
    dataset = _dataset(source, batch_size=None)
    got = _first(loader_of(dataset, 0, batch_size=8), cut)
    fresh = _dataset(source, batch_size=None)
    fresh.load_state_dict(_saved(dataset.state_dict()))
    assert got + _read(loader_of(fresh, 0, batch_size=8)) == whole


@pytest.mark.parametrize("batch_size", [5, None], ids=["batches", "samples"])
@pytest.mark.parametrize(("workers", "cut"), [(0, 4), (2, 1), (2, 5), (2, BATCHES - 1)])
def test_a_stateful_data_loader_resumes_exactly(workers: int, cut: int, batch_size: int | None, source: Path) -> None:
    def stateful() -> Any:
        dataset = _dataset(source, batch_size=batch_size)
        return StatefulDataLoader(dataset, batch_size=None if batch_size else 5, num_workers=workers)

    loader = stateful()
    epochs = [_read(loader) for _ in range(3)]
    before = stateful()
    assert _read(before) == epochs[0]
    got = _first(before, cut)
    state = pickle.loads(pickle.dumps(before.state_dict()))  # noqa: S301
    fresh = stateful()
    fresh.load_state_dict(state)
    assert got + _read(fresh) == epochs[1]
    assert _read(fresh) == epochs[2]


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_a_stateful_data_loader_goes_on_with_the_next_epoch_after_a_whole_one(
    workers: int, persistent: bool, source: Path
) -> None:
    def stateful() -> Any:
        dataset = _dataset(source)
        return StatefulDataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=persistent)

    loader = stateful()
    expected = _epochs(source, workers, [0, 1, 2, 3])
    assert [_read(loader), _read(loader)] == expected[:2]
    fresh = stateful()
    fresh.load_state_dict(loader.state_dict())
    assert [_read(fresh), _read(fresh)] == expected[2:]


@pytest.mark.parametrize(("before", "cut", "after"), [(2, 1, 1), (1, 0, 2), (1, 3, 2)])
def test_a_stateful_data_loader_with_other_workers_is_told_the_way_out(
    before: int, cut: int, after: int, source: Path
) -> None:
    loader = StatefulDataLoader(_dataset(source), batch_size=None, num_workers=before)
    _first(loader, cut)
    other = StatefulDataLoader(_dataset(source), batch_size=None, num_workers=after)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(ValueError, match=f"is of num_workers={before}, and there are {after}; give as many, or use"):
        iter(other)


class _SlowToLoad(CorgiDataset):
    """Its first worker begins when the others have loaded their states, and begun."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        info = get_worker_info()
        if info is not None and info.id == 0:
            time.sleep(0.3)


def test_with_repeat_every_worker_goes_on_in_the_epoch_that_it_is_in(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [3, 3, 3, 3])

    def stateful() -> Any:
        dataset = _SlowToLoad(tmp_path / "in", buffer_blocks=1, batch_size=4, repeat=True, seed=1)
        return StatefulDataLoader(dataset, batch_size=None, num_workers=2)

    whole = _first(stateful(), 15)
    for cut in range(1, 9):
        before = stateful()
        assert _first(before, cut) == whole[:cut]
        fresh = stateful()
        fresh.load_state_dict(before.state_dict())
        assert _first(fresh, 6) == whole[cut : cut + 6]


def test_the_states_that_workers_give_a_stateful_data_loader_are_plain(source: Path) -> None:
    loader = StatefulDataLoader(_dataset(source), batch_size=None, num_workers=2)
    _first(loader, 5)
    snapshot = loader.state_dict()["_snapshot"]
    states = [worker["dataset_state"] for worker in snapshot["_worker_snapshots"].values()]
    assert len(states) == 2
    assert [_saved(state) for state in states] == [json.loads(json.dumps(state)) for state in states]
    assert all(len(json.dumps(state)) < 1000 for state in states)


@pytest.mark.parametrize("cut", [1, 2, 5, 12])
def test_a_plain_data_loader_resumes_from_what_it_has_given(cut: int, source: Path) -> None:
    whole, after = _epochs(source, 2, [2, 3])
    dataset = _dataset(source)
    dataset.set_epoch(2)
    got = _first(loader_of(dataset, 2), cut)
    fresh = _dataset(source)
    fresh.load_state_dict(_saved(dataset.state_after(batches=cut, num_workers=2)))
    loader = loader_of(fresh, 2)
    assert got + _read(loader) == whole
    assert _read(loader) == after


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("batch_size", "own"), [(5, None), (None, 4)], ids=["batches", "samples"])
def test_a_resumed_data_loader_resumes_again(
    batch_size: int | None, own: int | None, persistent: bool, source: Path
) -> None:
    options: dict[str, Any] = {"batch_size": own, "persistent_workers": persistent}
    dataset = _dataset(source, batch_size=batch_size)
    whole, after = (_read(loader_of(dataset, 2, **options)) for _ in range(2))
    dataset.set_epoch(0)
    got, states = list[list[str]](), list[Any]()
    for cut in (3, 2, 4, None):
        loader = loader_of(dataset, 2, **options)
        batches = _first(loader, cut) if cut else _read(loader)
        got += batches
        states.append(dataset.state_after(len(batches), num_workers=2, batch_size=own))
        if cut:
            dataset = _dataset(source, batch_size=batch_size)
            dataset.load_state_dict(_saved(states[-1]))
    assert got == whole
    assert _read(loader) == after
    assert [len(state["shares"]) for state in states] == [1, 1, 1, 1]


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize(("batch_size", "own"), [(5, None), (None, 4)], ids=["batches", "samples"])
def test_resumed_on_another_number_of_workers_the_epoch_is_completed(
    batch_size: int | None, own: int | None, workers: int, source: Path
) -> None:
    dataset = _dataset(source, batch_size=batch_size)
    got = _first(loader_of(dataset, 2, batch_size=own), 3)
    fresh = _dataset(source, batch_size=batch_size)
    fresh.load_state_dict(_saved(dataset.state_after(3, num_workers=2, batch_size=own)))
    got += _first(loader_of(fresh, workers, batch_size=own), 4)
    last = _dataset(source, batch_size=batch_size)
    last.load_state_dict(_saved(fresh.state_after(4, num_workers=workers, batch_size=own)))
    got += _read(loader_of(last, 2, batch_size=own))
    assert sorted(_flat(got)) == EVERY


def test_state_after_without_workers_is_the_state(source: Path) -> None:
    dataset = _dataset(source)
    _first(loader_of(dataset, 0), 4)
    assert dataset.state_after(batches=4, num_workers=0) == dataset.state_dict()


def test_state_after_batches_of_the_data_loader_needs_their_size(source: Path) -> None:
    dataset = _dataset(source, batch_size=None)
    with pytest.raises(ValueError, match=r"state_after\(batches, num_workers, batch_size=\.\.\.\)"):
        dataset.state_after(5, num_workers=2)
    (share,) = dataset.state_after(5, num_workers=2, batch_size=1)["shares"]
    assert share[:2] == [5, 1]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_state_is_loaded_again_in_the_same_process(persistent: bool, source: Path) -> None:
    dataset = _dataset(source)
    (whole,) = _epochs(source, 2, [0])
    _first(loader_of(dataset, 2, persistent_workers=persistent), 5)
    dataset.load_state_dict(dataset.state_after(5, num_workers=2))
    assert _read(loader_of(dataset, 2, persistent_workers=persistent)) == whole[5:]


def test_set_epoch_to_the_epoch_of_a_loaded_state_keeps_the_state(source: Path) -> None:
    dataset = _dataset(source)
    (whole,) = _epochs(source, 2, [1])
    dataset.set_epoch(1)
    _first(loader_of(dataset, 2), 5)
    fresh = _dataset(source)
    fresh.load_state_dict(_saved(dataset.state_after(5, num_workers=2)))
    fresh.set_epoch(1)
    assert _read(loader_of(fresh, 2)) == whole[5:]
    fresh.set_epoch(1)
    assert _read(loader_of(fresh, 2)) == whole
    fresh.set_epoch(2)
    assert [_read(loader_of(fresh, 2))] == _epochs(source, 2, [2])


def test_a_process_whose_workers_read_refuses_a_state_and_names_the_way(source: Path) -> None:
    dataset = _dataset(source)
    batches = iter(loader_of(dataset, 2))
    next(batches)
    with pytest.raises(RuntimeError, match=r"2 workers read.*state_after\(batches=.*StatefulDataLoader"):
        dataset.state_dict()


def test_a_state_loaded_past_workers_that_live_on_is_refused_in_clear_words(source: Path) -> None:
    dataset = _dataset(source)
    loader = loader_of(dataset, 2, persistent_workers=True)
    _read(loader)
    dataset.load_state_dict(dataset.state_after(3, num_workers=2))
    _refused(loader, RuntimeError, "a state was loaded after the workers had started; make a new DataLoader")


@pytest.mark.parametrize(("rank", "world"), [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")])
def test_a_launchers_variables_name_the_rank(
    rank: str, world: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = []
    for number in range(3):
        monkeypatch.setenv(rank, str(number))
        monkeypatch.setenv(world, "3")
        got.append(_flat(_read(loader_of(_dataset(source, tail="keep"), 2))))
    assert sorted(_flat(got)) == EVERY
    assert sorted(map(len, got)) == [20, 20, 21]


def _command(argument: str) -> list[str]:
    warnings = ["-W", "error", "-W", "ignore:This DataLoader will create"]
    return [sys.executable, *warnings, "-m", "tests.torch_train", argument]


def _started(argument: str) -> "subprocess.Popen[str]":
    """In a group of its own, which can be ended as one."""
    variables = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return subprocess.Popen(
        _command(argument),
        cwd=Path(__file__).parents[2],
        env=variables | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def _finish(process: "subprocess.Popen[str]") -> None:
    try:
        _, errors = process.communicate(timeout=200)
    finally:
        _end_group(process)
    assert process.returncode == 0, errors


def _end_group(process: "subprocess.Popen[str]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _meet(source: Path, folder: Path, worlds: list[tuple[int, list[Run]]]) -> list[list[list[list[list[str]]]]]:
    """What each rank of each run of each world gives."""
    _finish(_started(Order(str(source), str(folder), worlds).as_argument()))
    return [
        [
            [json.loads(result_of(folder, world, run, rank).read_text()) for rank in range(ranks)]
            for run in range(len(runs))
        ]
        for world, (ranks, runs) in enumerate(worlds)
    ]


SETTINGS = {"buffer_blocks": 2, "batch_size": 3}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_of_a_process_group_are_disjoint_in_step_and_leave_out_fewer_than_there_are(
    ranks: int, source: Path, tmp_path: Path
) -> None:
    runs = [Run(SETTINGS, workers) for workers in (0, 2, 3)]
    if ranks == 2:
        runs += [Run(SETTINGS, 1), Run(SETTINGS, 1, "spawn")]
    ((*got,),) = _meet(source, tmp_path, [(ranks, runs)])
    assert len({str(run) for run in got[:3]}) == 3
    for run in got:
        assert len({len(batches) for batches in run}) == 1
        seen = [text for batches in run for text in _flat(batches)]
        assert max(Counter(seen).values()) == 1
        assert 0 <= len(EVERY) - len(seen) < ranks
    if ranks == 2:
        assert got[4] == got[3]


@pytest.mark.slow
def test_ranks_of_a_process_group_keep_or_repeat_the_tail(source: Path, tmp_path: Path) -> None:
    kept, repeated = SETTINGS | {"tail": "keep"}, SETTINGS | {"tail": "repeat"}
    runs = [Run(kept, 0, in_step=False), Run(kept, 2, in_step=False), Run(repeated, 0), Run(repeated, 2)]
    for ranks, world in zip((2, 4), _meet(source, tmp_path, [(2, runs), (4, runs)]), strict=True):
        for number, run in enumerate(world):
            seen = [text for batches in run for text in _flat(batches)]
            assert sorted(set(seen)) == EVERY
            if number < 2:
                assert len(seen) == len(EVERY)
            else:
                assert len(seen) == -(-len(EVERY) // ranks) * ranks
                assert len({len(batches) for batches in run}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_is_completed_by_worlds_of_other_sizes(workers: int, source: Path, tmp_path: Path) -> None:
    def run(batches: int | None, resumes: str | None, leaves: str | None) -> Run:
        settings = SETTINGS | {"tail": "keep"}
        return Run(settings, workers, batches=batches, in_step=batches is not None, resumes=resumes, leaves=leaves)

    worlds = [
        (2, [run(3, None, "a")]),
        (3, [run(2, "a", "b")]),
        (1, [run(2, "b", "c")]),
        (2, [run(2, "c", "d")]),
        (2, [run(None, "d", None)]),
    ]
    got = _meet(source, tmp_path, worlds)
    seen = [text for world in got for run in world for batches in run for text in _flat(batches)]
    assert sorted(seen) == EVERY
    assert len(got[-1][0][0]) > 1


def _shared_memory() -> set[Path]:
    return set(Path("/dev/shm").iterdir())


def _waits(condition: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def _is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "kills"), [(0, [4, 16]), (2, [7])])
def test_a_training_that_is_killed_goes_on_from_its_last_checkpoint(
    workers: int, kills: list[int], source: Path, tmp_path: Path
) -> None:
    (whole,) = _epochs(source, workers, [0], batch_size=2)
    files, memory = sorted(source.rglob("*")), _shared_memory()
    path = tmp_path / "checkpoint.json"

    def seen() -> list[list[str]]:
        return list(json.loads(path.read_text())["seen"]) if path.exists() else []

    settings = {"buffer_blocks": 2, "batch_size": 2}
    slow = Training(str(source), str(path), settings, workers, pause_seconds=0.15).as_argument()
    for least in kills:
        process = _started(slow)
        _waits(lambda least=least: len(seen()) >= least)
        process.kill()
        process.communicate()
        _waits(lambda process=process: _is_gone(process.pid))
        assert process.returncode == -signal.SIGKILL
        assert least <= len(seen()) < len(whole)
        assert seen() == whole[: len(seen())]
    _finish(_started(Training(str(source), str(path), settings, workers).as_argument()))
    assert seen() == whole
    assert sorted(_flat(seen())) == EVERY
    assert sorted(source.rglob("*")) == files
    assert [name.name for name in tmp_path.iterdir()] == ["checkpoint.json"]
    _waits(lambda: _shared_memory() <= memory)


class IterableDatasetShard(IterableDataset):  # type: ignore[type-arg]
    """As accelerate has one: all ranks read everything, and each keeps its part."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self.dataset):
            if number % 2 == 0:
                yield batch


@pytest.mark.parametrize("workers", [0, 2])
def test_a_wrapper_that_would_shard_again_is_refused(workers: int, source: Path) -> None:
    twice: DataLoader[Any] = DataLoader(
        IterableDatasetShard(_dataset(source, rank=0, world_size=2)), batch_size=None, num_workers=workers
    )
    _refused(twice, RuntimeError, "IterableDatasetShard would shard this data set a second time")
    once: DataLoader[Any] = DataLoader(
        IterableDatasetShard(_dataset(source, rank=0, world_size=1)), batch_size=None, num_workers=workers
    )
    assert _read(once)


class DataLoaderDispatcher:
    """As accelerate has one, which is its default: rank 0 reads, and shares out what it reads."""

    def __init__(self, loader: "DataLoader[Any]", epoch: int | None = None) -> None:
        self.loader, self.epoch = loader, epoch

    def __iter__(self) -> Iterator[Any]:
        if self.epoch is not None:
            cast(Any, self.loader.dataset).set_epoch(self.epoch)
        yield from self.loader


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), SPAWNED])
def test_a_wrapper_that_would_share_out_one_ranks_part_is_refused(
    workers: int, method: str | None, world_size: int, source: Path
) -> None:
    dataset = _dataset(source, rank=0, world_size=world_size)
    dispatcher = DataLoaderDispatcher(loader_of(dataset, workers, method))
    if world_size == 1:
        assert sorted(_flat(_read(dispatcher))) == EVERY
    else:
        _refused(dispatcher, RuntimeError, "DataLoaderDispatcher would share out rank 0's part")
        for _ in dispatcher.loader:
            assert len(_read(loader_of(dataset, 0))) == 6
            break


def test_a_wrapper_that_sets_the_epoch_is_refused_before_a_rank_waits(source: Path) -> None:
    dispatcher = DataLoaderDispatcher(loader_of(_dataset(source, rank=1, world_size=2), 0), epoch=0)
    with pytest.raises(RuntimeError, match="DataLoaderDispatcher") as refusal:
        next(iter(dispatcher))
    assert refusal.traceback[-2].name == "set_epoch"


@pytest.mark.parametrize("batch_size", [None, 2])
def test_few_shards_are_enough_for_many_ranks(batch_size: int | None, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [17] * 8)
    datasets = [CorgiDataset(tmp_path / "in", rank=rank, world_size=64, batch_size=batch_size) for rank in range(64)]
    ranks = [_read({"t": [item["t"]] if batch_size is None else item["t"]} for item in dataset) for dataset in datasets]
    assert {len(batches) for batches in ranks} == set(map(len, datasets))
    assert len({len(batches) for batches in ranks}) == 1
    times = Counter(text for batches in ranks for text in _flat(batches))
    assert max(times.values()) == 1
    assert 8 * 17 - len(times) < 64


@pytest.mark.parametrize("workers", [0, 2])
def test_the_error_of_a_damaged_shard_names_it(workers: int, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [5, 5, 5])
    dataset = CorgiDataset(tmp_path / "in", batch_size=2)
    path = tmp_path / "in" / "data-0001.tar"
    data, stat = bytearray(path.read_bytes()), path.stat()
    data[1000] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "ShardError" in _refused(loader_of(dataset, workers), Exception, "data-0001.tar")


def test_one_workers_own_state_is_refused_elsewhere(source: Path) -> None:
    loader = StatefulDataLoader(_dataset(source), batch_size=None, num_workers=2)
    _first(loader, 5)
    snapshot = loader.state_dict()["_snapshot"]["_worker_snapshots"]["worker_0"]["dataset_state"]
    dataset = _dataset(source)
    dataset.load_state_dict(snapshot)
    _refused(loader_of(dataset, 0), SourceError, "belongs to one reader")


def test_a_program_that_ends_in_mid_epoch_says_nothing(source: Path) -> None:
    code = """
import sys
from corgi2.torch import CorgiDataset
batches = iter(CorgiDataset(sys.argv[1], buffer_blocks=2, batch_size=5))
next(batches)
"""
    ended = subprocess.run([sys.executable, "-c", code, str(source)], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
