"""Blocks come back to the nodes that keep them; a state knows that, and resumes with or without it."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import corgi2
from corgi2.online.ranks import ranks_per_node
from tests.sources import write_source


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    write_source(tmp_path / "in", ".jsonl", [12] * 32)
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", buffer="10MB", buffer_blocks=8)
    return tmp_path / "out"


def _ranks(folder: Path, ranks: int, affinity: Any, **more: Any) -> list[corgi2.Loader]:
    place = {"batch_size": 4, "buffer_blocks": 2, "tail": "keep", "affinity": affinity}
    return [corgi2.Loader(folder, rank=rank, world_size=ranks, **(place | more)) for rank in range(ranks)]


def _texts(batches: Any) -> Counter[str]:
    return Counter(text for batch in batches for text in batch["t"])


def test_every_example_comes_once_whatever_the_nodes(mixed: Path) -> None:
    for nodes in ([1, 1, 1, 1], [2, 2], [1, 3], [4]):
        for _ in range(2):
            found = sum((_texts(loader) for loader in _ranks(mixed, 4, nodes)), Counter[str]())
            assert len(found) == 32 * 12
            assert set(found.values()) == {1}


def test_nodes_read_the_same_blocks_in_every_epoch_but_for_cut_ones(mixed: Path, tmp_path: Path) -> None:
    nodes = [
        [corgi2.Loader(mixed, batch_size=4, buffer_blocks=2, rank=node, world_size=2, affinity=[1, 1], tail="keep",
                       cache_dir=tmp_path / f"node-{node}")]
        for node in range(2)
    ]  # fmt: skip
    for loaders in nodes:
        _texts(loaders[0])
    for loader in (loaders[0] for loaders in nodes):
        before = loader.catalog.source.store.requests.reads
        for _ in range(3):
            _texts(loader)
        assert loader.catalog.source.store.requests.reads - before <= 3


@pytest.mark.parametrize("before", [None, [1, 1, 1, 1], [1, 3]])
@pytest.mark.parametrize(("after", "ranks"), [(None, 3), ([1, 2], 3), ([2, 2], 4), ([1, 1, 1, 1], 4)])
def test_a_state_resumes_with_and_without_nodes(
    before: Sequence[int] | None, after: Sequence[int] | None, ranks: int, mixed: Path
) -> None:
    seen, states = Counter[str](), list[str]()
    for loader in _ranks(mixed, 4, before):
        batches = iter(loader)
        seen += _texts(islice(batches, 7))
        states.append(json.dumps(loader.state_dict()))
        batches.close()
    assert len(set(states)) == 1
    new = _ranks(mixed, ranks, after)
    for loader in new:
        loader.load_state_dict(json.loads(states[0]))
        seen += _texts(loader)
    assert len(seen) == 32 * 12
    assert set(seen.values()) == {1}


def test_a_resumed_epoch_on_the_same_nodes_is_the_unbroken_one(mixed: Path) -> None:
    whole = [[batch["t"] for batch in loader] for loader in _ranks(mixed, 2, [1, 1])]
    for rank, loader in enumerate(_ranks(mixed, 2, [1, 1])):
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        state = loader.state_dict()
        batches.close()
        again = _ranks(mixed, 2, [1, 1])[rank]
        again.load_state_dict(state)
        assert [batch["t"] for batch in again] == whole[rank][5:]


def test_without_shuffling_there_are_no_nodes(mixed: Path) -> None:
    assert _ranks(mixed, 2, [1, 1], shuffle=False)[0].nodes == ()


@pytest.mark.parametrize(
    ("variables", "ranks", "nodes"),
    [
        ({"LOCAL_WORLD_SIZE": "2"}, 6, (2, 2, 2)),
        ({"LOCAL_WORLD_SIZE": "4"}, 4, ()),
        ({"LOCAL_WORLD_SIZE": "4"}, 6, ()),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, 6, (3, 3)),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3"}, 11, (4, 4, 3)),
        ({"SLURM_TASKS_PER_NODE": "8"}, 8, ()),
        ({"SLURM_TASKS_PER_NODE": "nonsense"}, 8, ()),
        ({}, 8, ()),
    ],
)
def test_launchers_tell_how_many_ranks_each_node_has(
    variables: dict[str, str], ranks: int, nodes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ranks_per_node(ranks) == nodes


@pytest.mark.parametrize(
    ("value", "words"), [("rack", "must be"), (3, "must be"), ([0, 2], "at least 1"), ([1, 1], "2 ranks")]
)
def test_bad_affinities_are_refused(value: Any, words: str, mixed: Path) -> None:
    with pytest.raises(ValueError, match=words):
        corgi2.Loader(mixed, rank=0, world_size=3, affinity=value).world(1)


def test_with_a_cache_it_is_by_node_and_without_it_is_not(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert corgi2.Loader(mixed, rank=0, world_size=4).nodes == ()
    assert corgi2.Loader(mixed, rank=0, world_size=4, cache_dir=tmp_path / "cache").nodes == (2, 2)
    assert corgi2.Loader(mixed, rank=0, world_size=4, cache_dir=tmp_path / "cache", affinity=None).nodes == ()
