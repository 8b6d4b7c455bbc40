"""How a batch of a `CorgiLoader` passes from the process that read it to the one that gives it out.

Every worker has a ring of slots (`corgi2.online.slots`), which begins and ends with it. `wrapped` is called in the
worker, once for every batch, and what it returns goes through torch's queue; `unwrapped` is called in the loader's
process, once for every batch that it gives out. Without workers neither is called.

A slot is free again once no tensor, array or table of its batch is alive. Pinning copies, and only then is the slot let
go of; a device copies what is not pinned before torch returns. What finds no free slot, or does not fit in one, goes as
torch sends it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from corgi2.extras import needing
from corgi2.online import Foreign, Packed, Ring, Room, slots_for, unpack
from corgi2.torch.tensors import which_worker

with needing("torch", "corgi2.torch"):
    import torch
    from torch.utils.data._utils.pin_memory import pin_memory


def _array_of(tensor: torch.Tensor) -> Any:
    """None for those that torch alone can describe: of other layouts, on devices, or with a gradient."""
    if tensor.requires_grad or tensor.device.type != "cpu" or tensor.layout != torch.strided:
        return None
    if not tensor.is_contiguous():
        return None
    try:
        return tensor.resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError):  # a type that NumPy does not have, such as bfloat16
        return None


TENSORS = Foreign(torch.Tensor, _array_of, torch.from_numpy)


class Handing:
    """The slots of all workers of one iteration, or of all iterations if workers persist."""

    def __init__(self, room: Room, workers: int, prefetch: int) -> None:
        slots, slot_bytes = slots_for(room, prefetch)
        self.rings = {worker: Ring(slots, slot_bytes, TENSORS) for worker in range(workers)}

    @property
    def bytes(self) -> int:
        """That all slots take at most."""
        return sum(ring.bytes for ring in self.rings.values())

    @contextmanager
    def lent(self, data: Any) -> Iterator[None]:
        """While workers are started, they get it with the data set, as `handing`."""
        data.handing = self
        try:
            yield
        finally:
            data.handing = None

    def wrapped(self, batch: Any) -> Any:
        """As it goes through the queue."""
        worker = which_worker()[0]
        if len(self.rings) > 1:
            self.rings = {worker: self.rings[worker]}  # nobody else's
        packed = self.rings[worker].pack(batch)
        return Message(packed) if isinstance(packed, Packed) else packed

    def unwrapped(self, message: Any) -> Any:
        """As it was before `wrapped`."""
        return message.unpack() if isinstance(message, Message) else message


class Message:
    """A batch in a slot, as torch's queue and its thread that pins memory see it."""

    __slots__ = ("_packed",)

    def __init__(self, packed: Packed) -> None:
        self._packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, (self._packed,)

    def unpack(self) -> Any:
        return unpack(self._packed)

    def pin_memory(self) -> Any:
        """Torch calls it: the batch, of which it pins copies."""
        return pin_memory(self.unpack())  # type: ignore[no-untyped-call]
