"""The state that is saved: a place as JSON holds it, and the places that it leads to.

A state is a few integers. It names the data and the rules of the order, and is refused if either differs.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from corgi2.dataset import Catalog
from corgi2.errors import SourceError
from corgi2.online.place import Place
from corgi2.order import Share, World

_VERSION = 2

_FIELDS = {"data", "rules", "epoch", "shares"}


def state_of(place: Place, world: World, catalog: Catalog, rules: Mapping[str, Any]) -> dict[str, Any]:
    """A place as JSON holds it."""
    shares = place.shares
    state: dict[str, Any] = {"corgi2": _VERSION, "data": catalog.fingerprint, "rules": dict(rules)}
    if place.reader is not None and world.workers == 1:
        shares = (*shares, Share(world, -(-place.reader[1] // world.item), world.item))
    elif place.reader is not None or place.buffer is not None:
        state |= {"world": _numbers(world), "reader": place.reader, "buffer": place.buffer}
    return state | {
        "epoch": place.epoch,
        "shares": [[share.turns, share.turn, *_numbers(share.world)] for share in shares],
    }


def place_of(state: Mapping[str, Any], catalog: Catalog, rules: Mapping[str, Any]) -> Place:
    """The place that a state names; one of other data, or of another order, is refused."""
    state = json.loads(json.dumps(state))  # makes tuples lists
    if not isinstance(state, dict) or state.get("corgi2") != _VERSION or not state.keys() >= _FIELDS:
        raise SourceError(f"this is not a state of a corgi2 loader of version {_VERSION}")
    if state["data"] != catalog.fingerprint:
        raise SourceError(f"{catalog.source.url}: the state is of other data, or was taken before this was indexed")
    for name in dict.fromkeys([*rules, *state["rules"]]):
        was, value = state["rules"].get(name), rules.get(name)
        if was != value:
            raise SourceError(
                f"the state belongs to an epoch with {name}={was!r}, not {value!r}; give the same, or begin with the "
                "next epoch"
            )
    shares = tuple(Share(_world(numbers[2:]), *numbers[:2]) for numbers in state["shares"])
    reader, buffer, world = (state.get(name) for name in ("reader", "buffer", "world"))
    return Place(
        state["epoch"],
        shares,
        (reader[0], reader[1]) if reader else None,
        (buffer[0], buffer[1]) if buffer else None,
        _world(world) if world else None,
    )


def _numbers(world: World) -> list[int]:
    return [world.ranks, world.workers, world.window, world.item, *world.nodes]


def _world(numbers: list[int]) -> World:
    """As a state holds it: the ranks of each node come last."""
    ranks, workers, window, item, *nodes = numbers
    return World(ranks, workers, window, item, tuple(nodes))


def place_after(start: Place, world: World, turns: int, turn: int) -> Place:
    """Where all ranks are after this many turns of their workers, of this many examples each."""
    if start.reader is not None or start.buffer is not None:
        raise SourceError("the loader resumed from the state of one worker; take its states from StatefulDataLoader")
    shares = start.shares
    if not shares or shares[-1].world != world:
        return replace(start, shares=(*shares, Share(world, turns, turn)))
    last = shares[-1]
    if last.turn != turn and world.workers == 1:
        last, turns, turn = last._replace(turns=last.turns * last.turn, turn=1), turns * turn, 1
    if last.turn != turn:
        raise SourceError(f"this epoch began with batches of {last.turn}; continue with those")
    return replace(start, shares=(*shares[:-1], last._replace(turns=last.turns + turns)))
