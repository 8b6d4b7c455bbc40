"""How a batch of a `CorgiLoader` passes from the process that read it to the one that gives it out.

`wrapped` is called in the worker, once for every batch, and what it returns goes through torch's queue; `unwrapped` is
called in the loader's process, once for every batch that it gives out. Without workers neither is called.
"""

from typing import Any


def wrapped(batch: Any) -> Any:
    """As it goes through the queue: torch moves tensors to shared memory, and pickles everything else."""
    return batch


def unwrapped(message: Any) -> Any:
    """As it was before `wrapped`."""
    return message
