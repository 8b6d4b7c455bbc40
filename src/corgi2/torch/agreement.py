"""How ranks notice that they differ, before they lose examples.

Each rank puts what determines its order into the key-value store of the process group, unless another has done so, and
compares. Nobody waits for anybody: a loader that one rank alone reads does not hang.
"""

import itertools
import json
from datetime import timedelta
from typing import Any

from corgi2.errors import SourceError
from corgi2.extras import needing
from corgi2.online import auto_buffer

with needing("torch", "corgi2.torch"):
    import torch.distributed as distributed

_numbers = itertools.count()
_KEPT = 8
"""Iterations that a slow rank may be behind the fastest."""
PATIENCE_SECONDS = 60.0


class Agreement:
    """What the ranks' loaders that were made as the same one, counted from the start of each process, must share."""

    def __init__(self) -> None:
        self._number, self._at = next(_numbers), -1
        self._start: Any = None

    def buffer_bytes(self, rank: int | None) -> int:
        """A buffer that is the same on all ranks: the first one decides."""
        store, own = _store(), auto_buffer()
        if store is None:
            return own
        key = f"corgi2/buffer/{self._number}"
        if (distributed.get_rank() if rank is None else rank) == 0:
            store.set(key, str(own))
            return own
        try:
            store.wait([key], timedelta(seconds=PATIENCE_SECONDS))
        except RuntimeError:
            raise SourceError(
                f"buffer='auto' is what rank 0 chooses, and rank 0 has made no such loader for {PATIENCE_SECONDS:g} s; "
                "give a size, such as buffer='2GB', or, for a loader of this rank alone, rank=0, world_size=1"
            ) from None
        return int(store.get(key))

    def check(self, rank: int, values: dict[str, Any], left: int | None = None) -> None:
        """Refuse to begin an iteration that another rank begins differently. One that begins where the one before it
        began counts as the same. ``left`` is how many batches were given of the one before, if it was not completed
        and nobody has said which epoch comes next."""
        store, values = _store(), json.loads(json.dumps(values))  # as others read them: makes tuples lists
        if store is None:
            return
        start = values.get("epoch"), values.get("resumes")
        if start != self._start:
            self._start, self._at = start, self._at + 1
        try:
            if left is not None:
                store.set(self._left(self._at - 1), json.dumps([rank, left]))
            theirs = json.loads(store.compare_set(self._key(self._at), "", json.dumps(values)))
            if self._at >= _KEPT:
                store.delete_key(self._key(self._at - _KEPT))
                store.delete_key(self._left(self._at - _KEPT))
        except RuntimeError:
            return  # the rank that keeps the store has ended
        differing = [name for name, value in values.items() if theirs.get(name) != value]
        if differing:
            told = ", ".join(f"{name}={values[name]!r} (elsewhere {theirs.get(name)!r})" for name in differing)
            raise RuntimeError(
                f"rank {rank} would read other examples than the other ranks expect: {told} in "
                f"iteration {self._at} of its loader; give all ranks the same, or rank=0, world_size=1 to a loader "
                "that not all of them have"
            )

    def follow(self, rank: int, given: int) -> None:
        """Refuse to go on where another rank has left this iteration earlier and begun the next, as one does that has
        looked at a batch before training."""
        store = _store()
        if store is None or self._at < 0:
            return
        try:
            told = store.get(self._left(self._at)) if store.check([self._left(self._at)]) else None
        except RuntimeError:
            return
        other, left = json.loads(told) if told else (rank, given)
        if left < given and other != rank:
            raise RuntimeError(
                f"rank {other} has left this epoch at batch {left} and is in the next one, while rank {rank} goes on "
                "in it: their parts do not belong together; look at batches of a loader with rank=0, world_size=1, or "
                "call set_epoch(epoch) on all ranks before each epoch"
            )

    def _key(self, number: int) -> str:
        return f"corgi2/iteration/{self._number}/{number}"

    def _left(self, number: int) -> str:
        return f"corgi2/left/{self._number}/{number}"


def _store() -> Any:
    """Of the process group, if there is one."""
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.distributed_c10d._get_default_store()
