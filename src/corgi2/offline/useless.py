"""Shuffles that gain nothing: refused, unless they are forced, with the smallest buffer that would mix.

A pass of n = 1 shuffles every block in itself and mixes nothing between them. And because every group writes at least
one shard, many small groups turn few shards into many small ones.
"""

from collections.abc import Iterator
from dataclasses import replace

from corgi2.budget import way_out
from corgi2.errors import SourceError
from corgi2.offline.foresight import look_ahead
from corgi2.offline.passes import Pass, first_pass, wanted_shards
from corgi2.offline.plan import Plan
from corgi2.sizes import plural

_TIMES, _FEW = 4, 100
"""New shards are too many if they are this many times as many as were wanted, and more than this many."""
_STEP_BYTES = 1_000_000


def check_useful(plan: Plan, first: Pass) -> None:
    """Refuse a plan that gains nothing."""
    problem = next(drawbacks(plan, first), None)
    if problem is not None:
        raise SourceError(
            f"{plan.source}: {problem}", hint=f"{_enough(plan, first)}; force=True does it anyway", kind="memory"
        )


def drawbacks(plan: Plan, first: Pass) -> Iterator[str]:
    """What makes it useless."""
    wanted, blocks = wanted_shards(plan, first.index), first.index.blocks.num_rows
    most = max(each.n for each in look_ahead(first, plan, first.source.store).passes)
    return why_useless(most, blocks, len(first.groups), wanted)


def why_useless(n: int, blocks: int, groups: int, wanted: float) -> Iterator[str]:
    """The same, by the largest n of all passes, the groups of the first, and how many shards are wanted."""
    if n == 1 and blocks > 1:
        yield "n = 1: every block is shuffled in itself, and nothing is mixed between them"
    if groups > max(_FEW, _TIMES * wanted):
        made, shards = plural(groups, "group"), plural(groups, "shard")
        yield f"{made} write at least one shard each: there would be {shards}, not {max(1, round(wanted)):,}"


def _most_groups(plan: Plan, first: Pass) -> float:
    return max(_FEW, _TIMES * wanted_shards(plan, first.index))


def _enough(plan: Plan, first: Pass) -> str:
    """The smallest buffer, in bytes or in blocks, that has no drawback."""
    if plan.settings.buffer_blocks is not None:
        blocks = int(-(-first.index.blocks.num_rows // _most_groups(plan, first)))
        return f"buffer_blocks={max(2, blocks)} or more would do"
    return way_out(_enough_bytes(plan, first))


def _enough_bytes(plan: Plan, first: Pass) -> int:
    """Found by bisection: with all blocks in one group, there is no drawback."""
    too_little, enough = plan.buffer_bytes, max(2 * plan.buffer_bytes, 2 * first.index.footprint)
    while _is_useless(plan, first, enough):
        too_little, enough = enough, 2 * enough
    while enough - too_little > _STEP_BYTES:
        middle = (too_little + enough) // 2
        if _is_useless(plan, first, middle):
            too_little = middle
        else:
            enough = middle
    return enough


def _is_useless(plan: Plan, first: Pass, buffer_bytes: int) -> bool:
    larger = replace(plan, buffer_bytes=buffer_bytes)
    return any(drawbacks(larger, first_pass(first.source, first.index, larger)))
