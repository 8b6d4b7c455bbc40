"""An epoch, shared out: every record once, every reader its quota, whatever the world, and however it changes."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgi2.order.dealing import Deal, deal, deal_shards
from corgi2.order.epochs import Rest, buffer_order, epoch_rest, window_of
from corgi2.order.nodes import Origin
from corgi2.order.permutations import Indices
from corgi2.order.replaying import consume, replay
from corgi2.order.worlds import Rules, Share, World, turns_of

Record = tuple[int, int]
"""A block, and a row of it."""

COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=25).map(lambda counts: np.array(counts, np.int64))
PLAIN = st.builds(World, st.integers(1, 5), st.integers(1, 3), st.integers(1, 30), st.integers(1, 4), st.just(()))
"""Worlds that deal all blocks to all ranks."""
WORLDS = PLAIN | st.builds(
    lambda nodes, world: world._replace(ranks=sum(nodes), nodes=nodes),
    st.lists(st.integers(1, 3), min_size=2, max_size=4).map(tuple),
    PLAIN,
)
RULES = st.builds(
    Rules,
    st.integers(0, 99),
    st.booleans(),
    st.just("random"),
    st.sampled_from(["drop", "repeat", "keep"]),
    st.booleans(),
)


def records_of(part: Deal) -> list[Record]:
    return [
        (int(block), int(row))
        for block, first, last in zip(part.block, part.first, part.last, strict=True)
        for row in part.rest.rows_of(int(block), int(first), int(last))
    ]


def sequence(dealt: Deal, reader: int, rules: Rules, epoch: int = 0, change: int = 0) -> list[Record]:
    """What a reader gives, in order."""
    given: list[Record] = []
    for part in dealt.buffers(reader):
        records = records_of(part)
        order = buffer_order(len(records), rules, epoch, change, reader, int(part.buffer[0]))
        given += [records[place] for place in order]
    return given


def every(counts: Indices) -> set[Record]:
    return {(block, row) for block, count in enumerate(counts) for row in range(count)}


@given(COUNTS, WORLDS, RULES)
def test_every_record_goes_to_one_reader(counts: Indices, world: World, rules: Rules) -> None:
    dealt = deal(epoch_rest(counts, None, rules, 0), world, rules)
    seen = Counter(records_of(dealt))
    assert set(seen) <= every(counts)
    missing = len(every(counts)) - len(seen)
    if rules.drop_last:
        assert missing < world.ranks * world.item
    elif rules.tail == "drop":
        assert missing < world.ranks
    else:
        assert missing == 0
    again = Counter(record for part in [dealt] for record in records_of(part))
    repeats = sum(again.values()) - len(again)
    assert repeats < world.ranks if rules.tail == "repeat" else repeats == 0


@given(COUNTS, WORLDS, RULES)
def test_every_reader_has_its_quota(counts: Indices, world: World, rules: Rules) -> None:
    dealt = deal(epoch_rest(counts, None, rules, 0), world, rules)
    lengths = np.array([len(sequence(dealt, reader, rules)) for reader in range(world.readers)])
    assert (lengths == rules.quotas(int(counts.sum()), world)).all()
    by_rank = lengths.reshape(world.ranks, world.workers)
    if rules.tail != "keep":
        assert (by_rank == by_rank[0]).all()
    assert ((by_rank % world.item > 0).sum(axis=1) <= (not rules.drop_last)).all(), "one short item a rank"
    items = -(-by_rank // world.item)
    for rank in range(world.ranks):
        total = int(items[rank].sum())
        assert items[rank].tolist() == [turns_of(worker, total, world.workers) for worker in range(world.workers)]


@given(COUNTS, WORLDS, RULES)
def test_buffers_are_no_larger_than_promised_and_few_blocks_are_read_twice(
    counts: Indices, world: World, rules: Rules
) -> None:
    dealt = deal(epoch_rest(counts, None, rules, 0), world, rules)
    for reader in range(world.readers):
        assert all(len(part.block) <= world.most for part in dealt.buffers(reader))
    assert (~dealt.again).sum() <= len(counts) + world.readers


@given(COUNTS, WORLDS, st.booleans())
def test_repetitions_come_last_where_the_last_items_of_all_ranks_are_gathered(
    counts: Indices, world: World, drop_last: bool
) -> None:
    rules = Rules(3, True, "random", "repeat", drop_last)
    total = int(counts.sum())
    dealt = deal(epoch_rest(counts, None, rules, 0), world, rules)
    items = -(-rules.quota(total, world, 0) // world.item)
    earlier, last = list[Record](), list[Record]()
    for rank in range(world.ranks):
        for worker in range(world.workers):
            given = sequence(dealt, rank * world.workers + worker, rules)
            size = rules.last_item(total, world) if items and (items - 1) % world.workers == worker else 0
            earlier += given[: len(given) - size]
            last += given[len(given) - size :]
    again = sum(rules.repeats(total, world))
    first = earlier + last[: len(last) - again]
    assert len(set(first)) == len(first)
    assert set(last[len(last) - again :]) <= every(counts)
    assert drop_last or set(first) == every(counts)


@given(COUNTS, PLAIN)
def test_windows_follow_the_order(counts: Indices, world: World) -> None:
    """What lies in all buffers at one time follows each other, but for the few blocks that are cut at the end."""
    rest = epoch_rest(counts, None, Rules(), 0)
    dealt = deal_shards(rest, world)
    for window in range(-(-len(counts) // world.window)):
        blocks = rest.blocks[window * world.window : (window + 1) * world.window]
        assert sorted(dealt.block[dealt.buffer == window]) == sorted(blocks)


def _worlds(draw: st.DrawFn, most: int) -> list[tuple[World, float]]:
    return draw(st.lists(st.tuples(WORLDS, st.floats(0, 1)), min_size=1, max_size=most))


@settings(max_examples=200)
@given(st.data(), COUNTS, st.booleans(), st.sampled_from(["drop", "repeat", "keep"]))
def test_an_epoch_that_changes_worlds_gives_every_record_once(
    data: st.DataObject, counts: Indices, shuffle: bool, tail: str
) -> None:
    rules = Rules(7, shuffle, "random", tail)
    rest, seen, shares = epoch_rest(counts, None, rules, 3), list[Record](), list[Share]()
    worlds = data.draw(st.lists(st.tuples(WORLDS, st.floats(0, 1), st.integers(1, 3)), min_size=1, max_size=3))
    for change, (world, part, turn) in enumerate(worlds):
        turn = world.item if world.item > 1 else turn
        dealt = deal(rest, world, rules)
        items = -(-rules.quota(rest.total, world, 0) // turn)
        share = Share(world, int(part * items), turn)
        for reader in range(world.readers):
            seen += sequence(dealt, reader, rules, 3, change)[: share.consumed(reader % world.workers)]
        shares.append(share)
        rest = consume(rest, share, rules, 3, change)
    last = data.draw(WORLDS)
    dealt = deal(rest, last, rules)
    for reader in range(last.readers):
        seen += sequence(dealt, reader, rules, 3, len(shares))
    times = Counter(seen)
    assert set(times) <= every(counts)
    assert len(every(counts)) - len(times) < last.ranks if tail == "drop" else len(times) == len(every(counts))
    if tail != "repeat":
        assert max(times.values(), default=1) == 1
    whole = replay(epoch_rest(counts, None, rules, 3), shares, rules, 3)
    assert whole.blocks.tolist() == rest.blocks.tolist()
    assert whole.counts.tolist() == rest.counts.tolist()


def test_the_window_is_a_multiple_of_the_groups_where_it_can_be() -> None:
    lineage = np.repeat(np.arange(25), 40)[:, None]
    assert window_of(40, 1, lineage, 1000) == 25
    assert window_of(10, 8, lineage, 1000) == 75
    assert window_of(3, 8, lineage, 1000) == 24
    assert window_of(40, 1, None, 1000) == 40
    assert window_of(4000, 1, lineage, 1000) == 1000


def test_the_window_falls_back_on_coarser_levels() -> None:
    coarse = np.repeat(np.arange(4), 64)
    fine = np.tile(np.repeat(np.arange(16), 4), 4) + 16 * coarse
    lineage = np.stack([coarse, fine], axis=1)
    assert window_of(70, 1, lineage, 256) == 64
    assert window_of(30, 1, lineage, 256) == 28


@pytest.mark.parametrize(("ranks", "blocks", "records"), [(64, 8, 1000), (7, 3, 50), (100, 1, 100)])
def test_more_readers_than_blocks_share_them(ranks: int, blocks: int, records: int) -> None:
    world, rules = World(ranks, 2, blocks), Rules()
    dealt = deal(epoch_rest(np.full(blocks, records), None, rules, 0), world, rules)
    lengths = [len(sequence(dealt, reader, rules)) for reader in range(world.readers)]
    assert sum(lengths[:2]) == blocks * records // ranks
    assert len(set(map(sum, np.array(lengths).reshape(ranks, 2)))) == 1
    assert len(dealt.block) <= blocks + world.readers


def test_other_records_are_left_out_each_epoch() -> None:
    counts, world, rules = np.full(10, 10), World(7, 1, 7), Rules()
    left = [
        frozenset(every(counts) - set(records_of(deal(epoch_rest(counts, None, rules, epoch), world, rules))))
        for epoch in range(20)
    ]
    assert all(len(records) == 100 % 7 for records in left)
    assert len(set(left)) > 5


def test_the_order_lasts() -> None:
    rules, world = Rules(seed=5), World(2, 2, 8, 3)
    counts = np.array([3, 5, 4, 4, 6, 2, 5, 5, 3, 4], np.int64)
    lineage = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])[:, None]
    rest = epoch_rest(counts, lineage, rules, 1)
    dealt = deal(rest, world, rules)
    assert rest.blocks.tolist() == GOLDEN_BLOCKS
    assert sequence(dealt, 3, rules, 1) == GOLDEN_SEQUENCE


GOLDEN_BLOCKS = [1, 9, 7, 5, 2, 0, 8, 6, 4, 3]
GOLDEN_SEQUENCE = [(9, 3), (9, 1), (9, 2), (8, 1), (8, 0), (9, 0), (8, 2), (3, 2), (4, 5)]


def test_ragged_blocks_are_dealt_evenly() -> None:
    counts = np.random.default_rng(0).integers(1, 1000, 4000)
    world = World(8, 1, 64)
    dealt = deal_shards(epoch_rest(counts, None, Rules(), 0), world)
    totals = np.bincount(dealt.reader, dealt.last - dealt.first)
    assert totals.max() - totals.min() <= counts.max()


def test_a_rest_of_nothing_deals_nothing() -> None:
    empty = Rest(np.empty(0, np.int64), np.empty(0, np.int64), {}, Origin(np.empty(0, np.int64)))
    assert len(deal(empty, World(2, 2, 4), Rules()).block) == 0
