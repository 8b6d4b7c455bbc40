"""`CorgiLoader`: it counts what it gives out, so that its state is exact at any batch, wherever it goes on."""

import gc
import inspect
import itertools
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import corgi2
from corgi2.errors import SourceError
from corgi2.torch import CorgiDataset, CorgiLoader
from tests.sources import write_source
from tests.torch_train import loader_of, texts

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
COUNTS = [13, 7, 20, 9, 12]
EVERY = sorted(f"{shard} {number}" for shard, count in enumerate(COUNTS) for number in range(count))
BATCHES = 13
"""Of 5 examples, but for the last."""
KINDS = [
    pytest.param({}, id="alone"),
    pytest.param({"num_workers": 2}, id="2 workers"),
    pytest.param({"num_workers": 2, "persistent_workers": True}, id="2 persistent"),
]
SPAWNED = pytest.param({"num_workers": 2, "multiprocessing_context": "spawn"}, id="2 spawned", marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loader") / "in"
    write_source(folder, ".parquet", COUNTS)
    return folder


def _loader(source: Path, **settings: Any) -> CorgiLoader:
    return CorgiLoader(source, **{"buffer_blocks": 2, "batch_size": 5} | settings)


def _read(batches: Iterable[Any]) -> list[list[str]]:
    return [texts(batch) for batch in batches]


def _first(batches: Iterable[Any], count: int) -> list[list[str]]:
    return _read(itertools.islice(batches, count))


def _flat(batches: Iterable[list[str]]) -> list[str]:
    return [text for batch in batches for text in batch]


def _saved(loader: CorgiLoader) -> dict[str, Any]:
    """As it comes back from a checkpoint in JSON."""
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


def test_it_takes_the_arguments_of_the_data_set_and_each_is_explained() -> None:
    names = inspect.signature(CorgiLoader).parameters
    assert set(inspect.signature(CorgiDataset).parameters) - set(names) == {"src"}
    explained = inspect.getdoc(CorgiLoader.__init__) or ""
    assert [name for name in names if f"{name}: " not in explained] == []
    with pytest.raises(TypeError, match=r"CorgiLoader\(\) has no argument 'num_worker'; did you mean 'num_workers'"):
        CorgiLoader("folder", num_worker=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", [*KINDS, SPAWNED])
def test_an_epoch_is_that_of_the_data_set_in_a_data_loader(kind: dict[str, Any], source: Path) -> None:
    loader = _loader(source, **kind)
    assert isinstance(loader, DataLoader)
    other = loader_of(CorgiDataset(source, buffer_blocks=2, batch_size=5), kind.get("num_workers", 0))
    for _ in range(2):
        batches = _read(loader)
        assert batches == _read(other)
        assert sorted(_flat(batches)) == EVERY
        assert len(batches) == len(loader) == BATCHES


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_equals_uninterrupted_wherever_it_is_cut(kind: dict[str, Any], source: Path) -> None:
    whole = _loader(source, **kind)
    epochs = [_read(whole) for _ in range(3)]
    for cut in [0, 1, 6, BATCHES - 1, BATCHES]:
        begun = _loader(source, **kind, epoch=1)
        given = _first(begun, cut)
        resumed = _loader(source, **kind)
        resumed.load_state_dict(_saved(begun))
        assert len(resumed) == BATCHES
        rest = _read(resumed) if cut < BATCHES else []
        assert given + rest == epochs[1]
        assert _read(resumed) == epochs[2]
        assert resumed.state_dict() == whole.state_dict()


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_loaded_where_workers_read(kind: dict[str, Any], source: Path) -> None:
    loader = _loader(source, **kind)
    iterator = iter(loader)
    given = [texts(next(iterator)) for _ in range(4)]
    state = loader.state_dict()
    rest = _read(iterator)
    for _ in range(2):
        again = iter(loader)
        loader.load_state_dict(state)
        assert _read(again) == rest
    assert sorted(_flat(given + rest)) == EVERY


def test_a_resumed_epoch_resumes_again(source: Path) -> None:
    whole, given = _read(_loader(source, num_workers=2)), list[list[str]]()
    state = _loader(source, num_workers=2).state_dict()
    for count in [3, 4, 1, 5]:
        loader = _loader(source, num_workers=2)
        loader.load_state_dict(state)
        assert len(loader) == BATCHES
        given += _first(loader, count)
        state = _saved(loader)
        assert len(state["shares"]) <= 1
    assert given == whole


@pytest.mark.parametrize("kind", KINDS)
def test_asking_for_an_iteration_is_not_beginning_it(kind: dict[str, Any], source: Path) -> None:
    loader, other = _loader(source, **kind), _loader(source, **kind)
    early = iter(loader)
    iter(loader)
    loader.set_epoch(7)
    other.set_epoch(7)
    assert loader.state_dict() == other.state_dict()
    assert _read(early) == _read(other)
    assert _read(loader) == _read(other)


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_that_is_left_early_counts(kind: dict[str, Any], source: Path) -> None:
    left, whole = _loader(source, **kind), _loader(source, **kind)
    _first(left, 3)
    _read(whole)
    assert len(left) == BATCHES
    assert _read(left) == _read(whole)


def test_set_epoch_keeps_a_state_of_that_epoch_and_no_other(source: Path) -> None:
    begun = _loader(source, epoch=4)
    given = _first(begun, 3)
    whole = _read(_loader(source, epoch=4))
    for epoch, expected in [(4, whole[3:]), (5, _read(_loader(source, epoch=5)))]:
        loader = _loader(source)
        loader.load_state_dict(begun.state_dict())
        loader.set_epoch(epoch)
        assert _read(loader) == expected
    assert given == whole[:3]


@pytest.mark.parametrize("tail", ["drop", "repeat", "keep"])
@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (3, 2), (4, 0)])
def test_another_world_completes_the_epoch(ranks: int, workers: int, tail: str, source: Path) -> None:
    given, states = list[list[str]](), list[dict[str, Any]]()
    for rank in range(2):
        loader = _loader(source, rank=rank, world_size=2, num_workers=2, tail=tail)
        given += _first(loader, 2)
        states.append(_saved(loader))
    assert states[0] == states[1]
    for rank in range(ranks):
        loader = _loader(source, rank=rank, world_size=ranks, num_workers=workers, tail=tail)
        loader.load_state_dict(states[0])
        length, rest = len(loader), _read(loader)
        assert length == 2 + len(rest)
        given += rest
    times = Counter(_flat(given))
    assert set(times) <= set(EVERY)
    assert len(EVERY) - len(times) < ranks if tail == "drop" else len(times) == len(EVERY)
    assert sum(times.values()) - len(times) < ranks if tail == "repeat" else set(times.values()) == {1}


def test_ranks_that_keep_the_tail_end_alike(source: Path) -> None:
    loaders = [_loader(source, rank=rank, world_size=6, tail="keep") for rank in range(6)]
    assert {len(loader) for loader in loaders} == {2, 3}
    for loader in loaders:
        _read(loader)
    assert len({json.dumps(loader.state_dict()) for loader in loaders}) == 1
    assert loaders[0].state_dict()["epoch"] == 1
    for loader in loaders:
        begun = _loader(source, rank=loader.dataset.rank, world_size=6, tail="keep")  # type: ignore[attr-defined]
        _first(begun, 2)
        loader.load_state_dict(_saved(begun))
    assert sorted(len(_read(loader)) for loader in loaders) == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_iterations_side_by_side_are_an_epoch_each(workers: int, source: Path) -> None:
    whole = _loader(source, num_workers=workers)
    epochs = [_read(whole) for _ in range(2)]
    loader = _loader(source, num_workers=workers)
    pairs = list(zip(iter(loader), iter(loader), strict=True))
    assert [_read(side) for side in zip(*pairs, strict=True)] == epochs


def test_iterations_side_by_side_of_the_same_workers_are_refused(source: Path) -> None:
    loader = _loader(source, num_workers=1, persistent_workers=True)
    first, second = iter(loader), iter(loader)
    next(first)
    next(second)
    with pytest.raises(RuntimeError, match="a later iteration has taken over the persistent workers"):
        next(first)


def _double(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"length": 2 * len(sample["t"])}


def _names(samples: list[dict[str, Any]]) -> dict[str, Any]:
    assert all(sample["length"] == 2 * len(sample["t"]) for sample in samples)
    return {"t": [sample["t"] for sample in samples]}


@pytest.mark.parametrize("kind", KINDS)
def test_samples_that_the_user_collates_come_in_the_batches_that_columns_do(kind: dict[str, Any], source: Path) -> None:
    columns, collated = _loader(source, **kind), _loader(source, **kind, transform=_double, collate_fn=_names)
    assert _read(collated) == _read(columns)
    assert collated.state_dict() == columns.state_dict()


@pytest.mark.parametrize("workers", [0, 2])
def test_without_a_batch_size_samples_come_out_and_are_counted(workers: int, source: Path) -> None:
    loader = _loader(source, batch_size=None, num_workers=workers)
    assert len(loader) == len(EVERY)
    given = [sample["t"] for sample in itertools.islice(loader, 7)]
    resumed = _loader(source, batch_size=None, num_workers=workers)
    resumed.load_state_dict(_saved(loader))
    given += [sample["t"] for sample in resumed]
    assert sorted(" ".join(text.split()[:2]) for text in given) == EVERY


def test_a_data_set_is_read_in_batches_as_asked_for(source: Path) -> None:
    dataset = CorgiDataset(source, buffer_blocks=2, tail="keep", seed=3)
    loader = CorgiLoader(dataset, batch_size=5, collate_fn=lambda samples: {"t": [each["t"] for each in samples]})
    assert _read(loader) == _read(_loader(source, tail="keep", seed=3))
    stacked = CorgiLoader(CorgiDataset(source, transform=lambda sample: len(sample["t"])), batch_size=7)
    assert sum(len(batch) for batch in stacked) == len(EVERY)


def test_batches_are_skipped_by_another_data_loader_without_being_read(source: Path) -> None:
    loader, whole = _loader(source), _loader(source)
    epochs = [_read(whole) for _ in range(2)]
    batches = DataLoader(loader.dataset, batch_sampler=_Skip(loader.batch_sampler, 5), collate_fn=loader.collate_fn)
    assert _read(batches) == epochs[0][5:]
    assert _read(loader) == epochs[1]
    loader.load_state_dict(_loader_at(source, 3).state_dict())
    with pytest.raises(RuntimeError, match="goes on by itself after batch 3 of epoch 0"):
        list(batches)


class _Skip:
    def __init__(self, turns: Any, count: int) -> None:
        self._turns, self._count = turns, count

    def __iter__(self) -> Any:
        return itertools.islice(self._turns, self._count, None)


def _loader_at(source: Path, batches: int) -> CorgiLoader:
    loader = _loader(source)
    _first(loader, batches)
    return loader


def test_what_would_have_no_exact_state_is_refused_with_the_way_out(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"in_order=False has no exact state.*leave it out"):
        _loader(source, in_order=False)
    with pytest.raises(ValueError, match=r"repeat=True has no end.*iterate the CorgiLoader again"):
        _loader(source, repeat=True)
    with pytest.raises(ValueError, match="orders and batches examples itself"):
        _loader(source, sampler=[1])
    with pytest.raises(ValueError, match="give batch_size too"):
        _loader(source, batch_size=None, collate_fn=list)
    with pytest.raises(TypeError, match="read by its CorgiLoader alone"):
        next(iter(DataLoader(_loader(source).dataset)))
    with pytest.raises(SourceError, match="would do"):
        CorgiLoader(source, buffer=1 << 14, num_workers=64)
    few = tmp_path / "few"
    write_source(few, ".parquet", [2])
    with pytest.raises(SourceError, match="2 records are too few for 3 ranks"):
        list(CorgiLoader(few, rank=0, world_size=3, batch_size=1))
    with pytest.raises(SourceError, match="the state belongs to an epoch with seed=1"):
        _loader(source).load_state_dict(_loader(source, seed=1).state_dict())


def test_a_device_that_is_not_there_changes_nothing(source: Path) -> None:
    """Warnings are errors."""
    if torch.cuda.is_available():
        pytest.skip("it is there")
    assert _read(_loader(source, device="cuda", pin_memory=True)) == _read(_loader(source))


def test_batches_are_moved_one_ahead_and_counted_when_given(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".parquet", COUNTS)
    loader = CorgiLoader(
        tmp_path / "in", device="meta", batch_size=5, transform=lambda batch: torch.arange(len(batch["t"]))
    )
    batches = iter(loader)
    assert next(batches).device.type == "meta"
    assert loader.state_dict()["shares"][0][0] == 1
    assert len(list(batches)) == BATCHES - 1


def test_it_is_no_iterable_data_set_and_has_the_length_of_all_ranks(source: Path) -> None:
    loader = _loader(source, rank=1, world_size=2)
    assert not isinstance(loader.dataset, IterableDataset)
    assert len(loader.dataset) == 60  # type: ignore[arg-type]
    assert (loader.batch_size, loader.drop_last) == (5, False)
    assert repr(loader).startswith("<CorgiLoader with 0 workers, next epoch 0: batches of 5 of ")


def test_a_loader_that_goes_ends_its_workers(source: Path) -> None:
    loader = _loader(source, num_workers=1, persistent_workers=True)
    next(iter(loader))
    (process,) = loader._iterator._workers  # type: ignore[union-attr]
    del loader
    gc.collect()
    process.join(20)
    assert process.exitcode is not None


def test_states_of_the_data_set_and_of_the_plain_loader_go_on_here(source: Path) -> None:
    dataset = CorgiDataset(source, buffer_blocks=2, batch_size=5)
    given = _first(loader_of(dataset, 2), 4)
    loader = _loader(source, num_workers=2)
    loader.load_state_dict(dataset.state_after(4, 2))
    assert given + _read(loader) == _read(_loader(source, num_workers=2))
    plain = corgi2.Loader(source, buffer_blocks=2, batch_size=5)
    given = _first(plain, 4)
    loader = _loader(source)
    loader.load_state_dict(plain.state_dict())
    assert given + _read(loader) == _read(_loader(source))
