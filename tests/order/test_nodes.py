"""Blocks come back to the same nodes, and what all nodes have in memory is as even as without that."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2.order.dealing import Deal, deal
from corgi2.order.epochs import epoch_rest
from corgi2.order.nodes import Origin, homes_of
from corgi2.order.permutations import Indices
from corgi2.order.worlds import Rules, World

NODES = st.lists(st.integers(1, 4), min_size=2, max_size=5).map(tuple)


@given(NODES, st.integers(1, 12), st.integers(1, 12), st.integers(0, 9))
def test_each_node_has_its_part_of_every_group_and_of_all_records(
    nodes: tuple[int, ...], groups: int, size: int, seed: int
) -> None:
    group = np.repeat(np.arange(groups), size)
    records = np.random.default_rng(seed).integers(50, 100, len(group))
    ranks = sum(nodes)
    homes = np.repeat(np.arange(len(nodes)), nodes)[homes_of(Origin(records, group), ranks, seed)]
    for node, own in enumerate(nodes):
        for number in range(groups):
            held = int((homes[group == number] == node).sum())
            assert abs(held - size * own / ranks) <= 2 * own
        assert abs(records[homes == node].sum() - records.sum() * own / ranks) <= own * records.max()


def _at_home(dealt: Deal, world: World, homes: Indices) -> int:
    """How many pieces are read by the node that their block comes back to."""
    node = np.repeat(np.arange(len(world.nodes)), world.nodes)
    return int((node[homes[dealt.block]] == node[dealt.reader // world.workers]).sum())


@given(NODES, st.integers(1, 3), st.integers(1, 40), st.booleans(), st.integers(0, 9))
def test_all_blocks_but_cut_ones_are_read_at_home_in_every_epoch(
    nodes: tuple[int, ...], workers: int, window: int, is_mixed: bool, seed: int
) -> None:
    group, world = np.repeat(np.arange(7), 12), World(sum(nodes), workers, window, 1, nodes)
    records = np.random.default_rng(seed).integers(50, 100, len(group))
    lineage = group[:, None] if is_mixed else None
    homes = homes_of(Origin(records, group if is_mixed else None), sum(nodes), 3)
    for epoch in range(3):
        dealt = deal(epoch_rest(records, lineage, Rules(3), epoch), world, Rules(3))
        assert len(dealt.block) - _at_home(dealt, world, homes) <= world.readers


@pytest.mark.parametrize("nodes", [(1, 1, 1, 1), (2, 2), (2, 2, 4), (1, 3), (1, 7)])
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_window_over_all_nodes_takes_equally_much_of_every_group(nodes: tuple[int, ...], rounds: int) -> None:
    groups, size = 16, 48
    group = np.repeat(np.arange(groups * rounds), size)
    round_ = group // groups if rounds > 1 else None
    world = World(sum(nodes), 2, groups, 1, nodes)
    for epoch in range(3):
        rest = epoch_rest(np.full(len(group), 10), group[:, None], Rules(5), epoch, round_)
        dealt = deal(rest, world, Rules(5))
        for window in range(len(group) // groups):
            taken = group[dealt.block[dealt.buffer == window]]
            assert len(set((taken // groups).tolist())) == 1
            assert np.bincount(taken % groups, minlength=groups).tolist() == [1] * groups


def test_other_orders_in_other_epochs() -> None:
    group, world = np.repeat(np.arange(8), 8), World(2, 1, 8, 1, (1, 1))
    orders = [
        deal(epoch_rest(np.full(64, 5), group[:, None], Rules(), epoch), world, Rules()).block.tolist()
        for epoch in range(4)
    ]
    assert len({tuple(order) for order in orders}) == 4
