"""What is read off torch's stack is still there, and nothing rests on it alone."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset  # noqa: E402
from torch.utils.data._utils import fetch, worker  # noqa: E402

from corgi2.online.stack import answering_pipe  # noqa: E402
from corgi2.torch import CorgiDataset  # noqa: E402
from tests.sources import write_source  # noqa: E402


class _Pipes(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self):  # type: ignore[no-untyped-def]
        yield answering_pipe()


def test_a_worker_still_answers_in_what_torch_calls_its_data_queue() -> None:
    assert "data_queue" in inspect.signature(worker._worker_loop).parameters
    (pipe,) = DataLoader(_Pipes(), batch_size=None, num_workers=1)
    assert int(pipe) > 0
    assert answering_pipe() == 0


def test_epochs_of_all_workers_agree_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_source(tmp_path / "in", ".jsonl", [10] * 8)
    monkeypatch.setattr("corgi2.torch.dataset.answering_pipe", lambda: 0)
    loader = DataLoader(CorgiDataset(tmp_path / "in", buffer="10MB", batch_size=5), batch_size=None, num_workers=2)
    epochs = [[text for batch in loader for text in batch["t"]] for _ in range(3)]
    assert all(len(set(epoch)) == 80 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def _first(data: list[Any]) -> Any:
    return data[0]


class _Samples(IterableDataset):  # type: ignore[type-arg]
    """A data set of the user's, which takes batches apart."""

    def __init__(self, batches: CorgiDataset) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            yield from batch["t"]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_would_be_batched_again_are_refused_with_the_way_out(tmp_path: Path, workers: int) -> None:
    write_source(tmp_path / "in", ".jsonl", [10] * 8)
    for size in (1, 4):  # 1 is the DataLoader's default
        ds = CorgiDataset(tmp_path / "in", buffer="10MB", batch_size=8)
        with pytest.raises(ValueError, match=r"batch_size=8.*DataLoader\(ds, batch_size=None\)"):
            next(iter(DataLoader(ds, batch_size=size, num_workers=workers)))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_samples_and_collating_of_ones_own_are_let_through(tmp_path: Path, workers: int) -> None:
    write_source(tmp_path / "in", ".jsonl", [10] * 8)
    batches = CorgiDataset(tmp_path / "in", buffer="10MB", batch_size=8)
    samples = CorgiDataset(tmp_path / "in", buffer="10MB")
    assert len(list(DataLoader(batches, batch_size=None, num_workers=workers))) == 10
    assert len(list(DataLoader(batches, batch_size=1, collate_fn=_first, num_workers=workers))) == 10
    assert sum(len(batch["t"]) for batch in DataLoader(samples, batch_size=4, num_workers=workers)) == 80
    assert sum(map(len, DataLoader(_Samples(batches), batch_size=4, num_workers=workers))) == 80
    assert len(list(batches)) == 10


def test_what_asks_for_an_iteration_still_says_whether_it_batches() -> None:
    named = inspect.signature(fetch._IterableDatasetFetcher.__init__).parameters
    assert {"dataset", "auto_collation", "collate_fn"} <= named.keys()
