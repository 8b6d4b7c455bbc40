"""What is read off torch's stack is still there, and nothing rests on it alone."""

import inspect
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset  # noqa: E402
from torch.utils.data._utils import worker  # noqa: E402

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
    monkeypatch.setattr("corgi2.torch.answering_pipe", lambda: 0)
    loader = DataLoader(CorgiDataset(tmp_path / "in", buffer="10MB", batch_size=5), batch_size=None, num_workers=2)
    epochs = [[text for batch in loader for text in batch["t"]] for _ in range(3)]
    assert all(len(set(epoch)) == 80 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
