"""Training processes: ranks of a real process group, and one that writes checkpoints until it is killed.

As a program (``python -m tests.torch_train``) it gets one JSON argument, an `Order` or a `Training`. Ranks are forked,
so that torch is loaded once for all worlds; the process that forks them begins no threads.
"""

import json
import multiprocessing
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch.utils.data import DataLoader

from corgi2.torch import CorgiDataset

SECONDS = 60
"""After so long a rank that waits for another gives up."""


def texts(batch: dict[str, Any]) -> list[str]:
    """The names of a batch's examples."""
    return [" ".join(text.split()[:2]) for text in batch["t"]]


@dataclass(frozen=True, slots=True)
class Run:
    """Some batches of a world: settings of the data set, workers, and which state it begins with and leaves."""

    settings: dict[str, Any]
    workers: int = 0
    method: str | None = None
    batches: int | None = None
    """All of the epoch, where it is None."""
    in_step: bool = True
    """After every batch, all ranks wait for each other: none may have more than another."""
    resumes: str | None = None
    leaves: str | None = None
    """Names of states."""


@dataclass(frozen=True, slots=True)
class Order:
    """Worlds, one after another, and their runs."""

    source: str
    folder: str
    worlds: list[tuple[int, list[Run]]] = field(default_factory=list)

    def as_argument(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Training:
    """An epoch with a checkpoint after every few batches."""

    source: str
    checkpoint: str
    settings: dict[str, Any]
    workers: int = 0
    every: int = 3
    pause_seconds: float = 0.0

    def as_argument(self) -> str:
        return json.dumps(asdict(self))


def loader_of(dataset: CorgiDataset, workers: int, method: str | None = None, **options: Any) -> "DataLoader[Any]":
    return DataLoader(
        dataset,
        **{"batch_size": None} | options,
        num_workers=workers,
        multiprocessing_context=method,
    )


def result_of(folder: Path, world: int, run: int, rank: int) -> Path:
    return folder / f"result-{world}-{run}-{rank}.json"


def _rank(order: Order, world: int, rank: int) -> None:
    ranks, runs = order.worlds[world]
    folder = Path(order.folder)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting-{world}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=SECONDS),
    )
    for number, run in enumerate(runs):
        result_of(folder, world, number, rank).write_text(json.dumps(_batches(order.source, folder, run, rank)))
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _batches(source: str, folder: Path, run: Run, rank: int) -> list[list[str]]:
    dataset = CorgiDataset(source, **run.settings)
    if run.resumes is not None:
        dataset.load_state_dict(json.loads((folder / run.resumes).read_text()))
    got: list[list[str]] = []
    for batch in loader_of(dataset, run.workers, run.method):
        got.append(texts(batch))
        if run.in_step:
            met = torch.ones(1)
            torch.distributed.all_reduce(met)
            assert met.item() == torch.distributed.get_world_size()
        if len(got) == run.batches:
            break
    if run.leaves is not None and rank == 0:
        state = dataset.state_after(len(got), run.workers) if run.workers else dataset.state_dict()
        (folder / run.leaves).write_text(json.dumps(state))
    return got


def _meet(order: Order) -> None:
    context = multiprocessing.get_context("fork")
    for world, (ranks, _) in enumerate(order.worlds):
        processes = [context.Process(target=_rank, args=(order, world, rank)) for rank in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * ranks


def _train(training: Training) -> None:
    path = Path(training.checkpoint)
    dataset, seen = CorgiDataset(training.source, **training.settings), list[list[str]]()
    if path.exists():
        checkpoint = json.loads(path.read_text())
        dataset.load_state_dict(checkpoint["state"])
        seen = checkpoint["seen"]
    for number, batch in enumerate(loader_of(dataset, training.workers), 1):
        seen.append(texts(batch))
        if number % training.every == 0:
            state = dataset.state_after(number, training.workers) if training.workers else dataset.state_dict()
            _write(path, {"state": state, "seen": seen})
        time.sleep(training.pause_seconds)
    _write(path, {"state": None, "seen": seen})


def _write(path: Path, checkpoint: dict[str, Any]) -> None:
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(checkpoint))
    unfinished.replace(path)


def main() -> None:
    order = json.loads(sys.argv[1])
    if "checkpoint" in order:
        _train(Training(**order))
    else:
        worlds = [(ranks, [Run(**run) for run in runs]) for ranks, runs in order.pop("worlds")]
        _meet(Order(**order, worlds=worlds))


if __name__ == "__main__":
    main()
