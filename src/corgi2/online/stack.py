"""What only the stack of a process tells about the loader that reads. It is isolated here, because torch guarantees
none of it.

Names of torch and Accelerate are read: the function ``_worker_loop`` with its argument ``data_queue``, the arguments
``dataset``, ``auto_collation`` and ``collate_fn`` of what asks a data set for an iteration, and the classes in
`SHARDERS`. If torch renames one, `answering_pipe` returns 0, and the loader's seed alone tells iterations apart,
which fails only if a program sets torch's seed before every epoch and a worker ends before it began; and batches that
are batched again go unnoticed. The tests in
``tests/online/test_stack.py`` fail on the first torch that changes one, and check that epochs agree without it.
"""

import os
import sys
from types import FrameType

SHARDERS = {
    "IterableDatasetShard": "would shard this data set a second time, and each rank would see a part of its part",
    "DataLoaderDispatcher": "would share out rank 0's part of this data set, and the other ranks' would be lost",
}
"""Wrappers of Accelerate that give each rank a part of what every rank reads, or of what rank 0 reads."""


def sharder() -> str | None:
    """The wrapper that is asking for an iteration, if it would discard what other ranks read. It is on the stack of the
    process that asks, also of a forked worker, and when one is spawned."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = type(frame.f_locals.get("self")).__name__
        if name in SHARDERS:
            return name
        frame = frame.f_back
    return None


def is_batched_again(dataset: object) -> bool:
    """Whether a DataLoader asks this data set itself for an iteration, to stack its items into batches. A collate
    function of the user knows what it gets."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals
        if found.get("dataset") is dataset and "auto_collation" in found:
            return bool(found["auto_collation"]) and _name(found.get("collate_fn")) == "default_collate"
        frame = frame.f_back
    return False


def _name(function: object) -> str:
    return getattr(function, "__name__", "")


def answering_pipe() -> int:
    """The number of the pipe in which this worker answers; 0 if another thread reads, or torch has changed."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_worker_loop":
        frame = frame.f_back
    reader = getattr(frame.f_locals.get("data_queue") if frame is not None else None, "_reader", None)
    return 0 if reader is None else os.fstat(reader.fileno()).st_ino
