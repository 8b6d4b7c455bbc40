"""Every order of training, by its law: who can land where."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corgi2
from corgi2 import theory
from corgi2.order import simulate as orders
from corgi2.order.simulate import ORDERS, Layout

SAME = Layout(blocks=40, examples=6, buffer=5)
RAGGED = Layout(blocks=17, examples=5, buffer=4)
REPEATS = {"reservoir (MRS)", "Corgi², with replacement"}


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    blocks = draw(st.integers(1, 30))
    return Layout(blocks, draw(st.integers(1, 8)), draw(st.integers(1, blocks)))


@pytest.mark.parametrize("name", sorted(set(ORDERS) - REPEATS))
@given(layout=layouts(), seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 3))
def test_an_epoch_has_every_example_once(name: str, layout: Layout, seed: int, epoch: int) -> None:
    assert np.array_equal(np.sort(ORDERS[name](layout, seed, epoch)), np.arange(layout.total))


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_is_a_function_of_its_arguments(name: str) -> None:
    order = ORDERS[name]
    assert np.array_equal(order(SAME, 3, 1), order(SAME, 3, 1))


@pytest.mark.parametrize("name", sorted(set(ORDERS) - {"sequential"}))
def test_a_seed_changes_the_order(name: str) -> None:
    assert not np.array_equal(ORDERS[name](SAME, 3, 1), ORDERS[name](SAME, 4, 1))


@pytest.mark.parametrize("name", sorted(set(ORDERS) - {"sequential", "shuffle once"}))
def test_an_epoch_changes_the_order(name: str) -> None:
    assert not np.array_equal(ORDERS[name](SAME, 3, 1), ORDERS[name](SAME, 3, 2))


def test_what_is_shuffled_once_stays() -> None:
    order = orders.shuffle_once(SAME, 3, 0)
    assert np.array_equal(order, orders.shuffle_once(SAME, 3, 5))
    assert (np.diff(order) < 0).mean() == pytest.approx(0.5, abs=0.1)


def test_sequential_is_as_it_lies() -> None:
    assert np.array_equal(orders.sequential(SAME, 0, 0), np.arange(240))


@given(layout=layouts(), seed=st.integers(0, 99))
def test_a_sliding_window_gives_nothing_that_it_has_not_read(layout: Layout, seed: int) -> None:
    order = orders.sliding_window(layout, seed, 0)
    assert (order < np.arange(layout.total) + layout.window).all()


def test_a_sliding_window_keeps_an_example_for_about_its_size() -> None:
    layout = Layout(blocks=2000, examples=10, buffer=5)
    late = np.arange(layout.total) - orders.sliding_window(layout, 0, 0)
    assert late[1000:-1000].std() == pytest.approx(49.5, rel=0.05)  # that of a geometric wait with a chance of 1/50


@given(layout=layouts(), seed=st.integers(0, 99))
def test_a_reservoir_drops_each_example_once_and_goes_round_what_it_kept(layout: Layout, seed: int) -> None:
    size = max(1, layout.window // 2)
    first, second = orders.reservoir(layout, seed, 0), orders.reservoir(layout, seed, 1)
    assert len(set(first.tolist())) == len(first) == layout.total - size
    assert (first <= np.arange(len(first)) + size).all()
    kept = set(range(layout.total)) - set(first.tolist())
    assert len(second) == 2 * len(first)
    assert set(second[1::2].tolist()) <= kept
    if len(second) >= 2 * size:
        assert set(second[1::2].tolist()) == kept
    assert len(set(second[::2].tolist())) == len(first)


def test_a_reservoir_keeps_every_example_equally_often() -> None:
    layout = Layout(blocks=10, examples=4, buffer=4)
    kept = Counter[int]()
    for seed in range(2000):
        kept.update(set(range(40)) - set(orders.reservoir(layout, seed, 0).tolist()))
    counts = np.array([kept[number] for number in range(40)])
    assert abs(counts - 400).max() < 5 * np.sqrt(400 * 0.8)  # 8 of 40, in 2,000 draws


def test_block_only_keeps_the_order_within_blocks() -> None:
    order = orders.block_only(SAME, 1, 0).reshape(40, 6)
    assert (order == order[:, :1] + np.arange(6)).all()
    assert (order[:, 0] % 6 == 0).all()


def test_a_buffer_of_corgipile_holds_whole_blocks() -> None:
    buffers = orders.corgipile(SAME, 1, 0).reshape(8, 30)
    for buffer in buffers // 6:
        assert sorted(Counter(buffer.tolist()).values()) == [6] * 5
    assert (np.diff(buffers[0]) < 0).any()


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_partial_exchange_moves_its_share(share: float) -> None:
    layout = Layout(blocks=40, examples=50, buffer=5)  # 8 workers of 250
    order = orders.partial_exchange(layout, 1, 0, share)
    owners = order.reshape(-1, 8) // 250  # a step of all workers a row
    away = (owners != np.arange(8)).mean()
    assert away == pytest.approx(share * 7 / 8, abs=0.03)
    assert away <= share
    own = order.reshape(-1, 8)[:, 0]
    assert (np.diff(own[own < 250]) < 0).mean() == pytest.approx(0.5, abs=0.15), "a worker shuffles what it has"


def test_partial_exchanges_add_up() -> None:
    layout = Layout(blocks=40, examples=50, buffer=5)
    away = [
        (orders.partial_exchange(layout, 1, epoch).reshape(-1, 8) // 250 != np.arange(8)).mean() for epoch in range(30)
    ]
    assert away[0] < 0.11
    assert away[29] > 0.75  # of at most 7/8
    assert away[0] < away[4] < away[14] < away[29]


def test_with_replacement_drops_what_the_theory_says() -> None:
    layout = Layout(blocks=1000, examples=20, buffer=50)
    left = [len(np.unique(ORDERS["Corgi², with replacement"](layout, seed, 0))) / layout.total for seed in range(5)]
    assert np.mean(left) == pytest.approx(theory.surviving(), abs=0.02)


def test_a_window_of_even_picks_takes_alike_from_all_groups() -> None:
    layout = Layout(blocks=64, examples=6, buffer=8)
    stored = orders.offline(orders.as_stored(layout), 8, seed=2)
    assert stored.lineage is not None
    group = np.empty(layout.total, int)
    for block, line in zip(stored.blocks, stored.lineage, strict=True):
        group[block] = line[-1]
    for window in orders.online(stored, 8, 2, 0).reshape(8, 48):
        assert Counter(group[window].tolist()) == dict.fromkeys(range(8), 6)


VARIANTS: list[dict[str, Any]] = [
    {"passes": 1, "picks": "even"},
    {"passes": 1, "picks": "random"},
    {"passes": 2, "picks": "even"},
    {"passes": 2, "picks": "random"},
    {"passes": 1, "picks": "random", "with_replacement": True},
]


@pytest.mark.parametrize("layout", [SAME, RAGGED], ids=["divides", "does not divide"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_orders_of_corgi2_are_those_of_the_command_and_the_loader(
    tmp_path: Path, layout: Layout, variant: dict[str, Any]
) -> None:
    _write(tmp_path / "in", layout)
    picks = variant["picks"]
    given = {name: value for name, value in variant.items() if name != "picks"}
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", buffer="1GB", buffer_blocks=layout.buffer, seed=5, **given)
    for epoch in (0, 3):
        read = corgi2.Loader(tmp_path / "out", buffer_blocks=layout.buffer, seed=5, epoch=epoch, picks=picks)
        assert [sample["row"] for sample in read] == orders.corgi2(layout, 5, epoch, **variant).tolist()


def test_the_order_of_corgipile_is_that_of_the_loader(tmp_path: Path) -> None:
    _write(tmp_path / "in", SAME)
    read = corgi2.Loader(tmp_path / "in", buffer_blocks=SAME.buffer, seed=5, epoch=1)
    assert [sample["row"] for sample in read] == orders.corgipile(SAME, 5, 1).tolist()


def _write(folder: Path, layout: Layout) -> None:
    folder.mkdir()
    for block, rows in enumerate(np.arange(layout.total).reshape(layout.blocks, -1)):
        lines = [json.dumps({"row": row}) + "\n" for row in rows.tolist()]
        (folder / f"data-{block:03d}.jsonl").write_text("".join(lines))


def test_a_buffer_larger_than_the_data_is_refused() -> None:
    with pytest.raises(ValueError, match="between one block and all"):
        Layout(4, 5, 5)
