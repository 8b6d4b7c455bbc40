"""Batches of a `CorgiLoader` come through slots of its workers as they come without workers, and stay as they are."""

import gc
import itertools
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import get_worker_info

from corgi2.online import Room, slots_for
from corgi2.torch import CorgiLoader, handing
from corgi2.torch.handing import Handing, Message
from tests.batches import same
from tests.sources import write_source

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
SLOW = pytest.mark.slow
METHODS = ["fork", *(pytest.param(name, marks=SLOW) for name in ("spawn", "forkserver"))]
COUNTS = [13, 7, 20, 9, 12]
BATCHES, SLOTS = 13, 5
"""Slots of each worker where torch reads two batches ahead."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("handing") / "in"
    write_source(folder, ".parquet", COUNTS)
    return folder


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each batch that came from a worker, whether it came in a slot."""
    seen, unwrapped = list[bool](), Handing.unwrapped

    def noting(self: Handing, message: Any) -> Any:
        seen.append(isinstance(message, Message))
        return unwrapped(self, message)

    monkeypatch.setattr(Handing, "unwrapped", noting)
    yield seen
    gc.collect()  # ends workers that a test has left


def _loader(source: Path, **settings: Any) -> CorgiLoader:
    return CorgiLoader(source, **{"buffer_blocks": 2, "batch_size": 5} | settings)


def widened(batch: dict[str, Any]) -> dict[str, Any]:
    """With arrays and tensors that tell which batch it is."""
    first = sum(map(len, batch["t"]))
    return batch | {"a": np.full((3, 500), first), "b": torch.full((200,), first, dtype=torch.int32)}


def _alone(source: Path, **settings: Any) -> list[Any]:
    """What one worker gives, without a worker."""
    return list(_loader(source, **settings))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("persistent", [False, True])
def test_batches_that_are_all_kept_stay_as_they_are(
    method: str, persistent: bool, source: Path, messages: list[bool]
) -> None:
    """There are more of them than slots: the others come as torch sends them."""
    options = {"num_workers": 1, "multiprocessing_context": method, "persistent_workers": persistent}
    loader, plain = _loader(source, transform=widened, **options), _loader(source, transform=widened)
    for _ in range(2):
        kept, expected = list(loader), list(plain)
        assert len(kept) == BATCHES
        assert all(map(same, kept, expected))
        assert messages == [True] * SLOTS + [False] * (BATCHES - SLOTS)
        messages.clear()
        del kept


@pytest.mark.parametrize(
    ("suffix", "settings"),
    [
        (".tar", {}),
        (".jsonl", {}),
        (".parquet", {"batch_format": "arrow"}),
        (".parquet", {"collate_fn": lambda samples: torch.tensor([sample["shard"] for sample in samples])}),
    ],
)
def test_batches_that_are_let_go_of_leave_their_slots_to_others(
    suffix: str, settings: dict[str, Any], tmp_path: Path, messages: list[bool]
) -> None:
    write_source(tmp_path / "in", suffix, COUNTS)
    loader = _loader(tmp_path / "in", num_workers=1, **settings)
    expected = _alone(tmp_path / "in", **settings)
    assert all(same(batch, other) for batch, other in zip(loader, expected, strict=True))
    assert messages == [True] * BATCHES


def test_lists_of_samples_and_what_is_too_large_come_as_torch_sends_them(source: Path, messages: list[bool]) -> None:
    assert same(list(_loader(source, num_workers=1, batch_format="samples")), _alone(source, batch_format="samples"))
    large = _loader(source, num_workers=1, transform=lambda _: np.zeros(1 << 22, np.uint8))
    assert [len(batch) for batch in large] == [1 << 22] * BATCHES
    assert messages == [False] * 2 * BATCHES


def odd_tensors(_: Any) -> list[torch.Tensor]:
    """Those that NumPy cannot describe, or not wholly."""
    whole = torch.arange(24.0).reshape(1, 2, 3, 4)
    return [
        whole.to(memory_format=torch.channels_last),
        whole.bfloat16(),
        whole[:, :, ::2],
        torch.view_as_complex(whole.reshape(-1, 2)).conj(),
        whole,
    ]


def test_tensors_keep_their_layout(source: Path, messages: list[bool]) -> None:
    for batch in _loader(source, num_workers=1, transform=odd_tensors):
        for given, expected in zip(batch, odd_tensors(None), strict=True):
            assert given.dtype == expected.dtype
            assert given.stride() == expected.stride()
            assert torch.equal(given, expected)
    assert messages == [True] * BATCHES  # of which the last tensor lies in a slot


@pytest.mark.parametrize("persistent", [False, True])
def test_an_iteration_that_is_left_early_takes_no_slot_from_the_next(
    persistent: bool, source: Path, messages: list[bool]
) -> None:
    loader = _loader(source, num_workers=1, persistent_workers=persistent, transform=widened)
    plain = _loader(source, transform=widened)
    for _ in range(4):
        kept, expected = list(itertools.islice(loader, 3)), list(itertools.islice(plain, 3))
        assert all(map(same, kept, expected))
        del kept
    assert messages == [True] * 12


def test_an_epoch_that_is_resumed_comes_through_slots(source: Path, messages: list[bool]) -> None:
    loader, plain = _loader(source, num_workers=2, transform=widened), _loader(source, num_workers=2, transform=widened)
    whole = list(plain)
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    messages.clear()
    for batch, expected in zip(loader, whole[1:], strict=True):
        assert same(batch, expected)
    assert messages == [True] * (BATCHES - 1)


def test_two_iterations_at_once_keep_apart(source: Path, messages: list[bool]) -> None:
    loader, plain = _loader(source, num_workers=1, transform=widened), _loader(source, transform=widened)
    first, second = list(plain), list(plain)
    for number, (one, other) in enumerate(zip(iter(loader), iter(loader), strict=True)):
        assert same(one, first[number])
        one["a"][:] = -1
        one["b"].zero_()
        assert same(other, second[number])
    assert messages == [True] * 2 * BATCHES


def dying(batch: dict[str, Any]) -> dict[str, Any]:
    """In the fourth batch the worker is killed, while it writes into a slot."""
    info = get_worker_info()
    assert info is not None
    data: Any = info.dataset
    data.count = getattr(data, "count", 0) + 1
    if data.count == 4:
        (ring,) = data.handing.rings.values()
        start = ring.start_of(ring.memory.find(b"\0", 0, ring.slots))
        ring.memory[start : start + 500] = b"\xff" * 500
        os.kill(os.getpid(), signal.SIGKILL)
    return widened(batch)


def test_a_worker_that_is_killed_in_mid_write_spoils_nothing_that_was_handed_over(
    source: Path, messages: list[bool]
) -> None:
    loader, kept, expected = _loader(source, num_workers=1, transform=dying), list[Any](), _alone(source)
    with pytest.raises(RuntimeError, match="exited unexpectedly|killed by signal"):
        kept.extend(loader)
    assert messages == [True] * len(kept)
    assert all(same(batch, widened(expected[number])) for number, batch in enumerate(kept))
    resumed = _loader(source, num_workers=1)
    resumed.load_state_dict(loader.state_dict())
    assert all(map(same, resumed, expected[len(kept) :]))


def test_pinning_copies_and_then_lets_go_of_the_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's thread does it, which runs only beside an accelerator."""
    hands = Handing(Room(1, 10_000_000, 1, 1), 1, 2)
    message = pickle.loads(pickle.dumps(hands.wrapped({"a": torch.arange(9)})))  # noqa: S301
    monkeypatch.setattr(handing, "pin_memory", lambda batch: {name: value.clone() for name, value in batch.items()})
    (ring,) = hands.rings.values()
    pinned = message.pin_memory()
    assert sum(ring.memory[: ring.slots]) == 1
    del message
    assert sum(ring.memory[: ring.slots]) == 0
    assert pinned["a"].tolist() == [*range(9)]


def test_nothing_of_the_slots_stays_with_the_loader_once_workers_are_gone(source: Path) -> None:
    loader = _loader(source, num_workers=1)
    first = list(loader)
    again = pickle.loads(pickle.dumps(loader.dataset))  # noqa: S301
    assert again.handing is None
    assert loader._handing is None
    assert len(first) == BATCHES


@pytest.mark.parametrize("ahead", [1, 2, 8])
def test_slots_take_at_most_one_of_the_two_buffers_of_each_worker(ahead: int) -> None:
    room = Room(1, 10_000_000, 1, 1)
    slots, slot_bytes = slots_for(room, ahead)
    assert slots == ahead + 3
    assert slots * slot_bytes <= room.capacity
    assert Handing(room, 3, ahead).bytes <= 3 * room.capacity
