"""What only the stack of a process tells about the loader that reads. It is fenced in here, because torch promises
none of it.

Names of torch and Accelerate are read: the function ``_worker_loop`` with its argument ``data_queue``, and the classes
in `SHARDERS`. Where torch renames one, `answering_pipe` gives 0, and the loader's seed alone tells iterations apart,
which fails only if a program sets torch's seed before every epoch and a worker ends before it began. The tests in
``tests/online/test_stack.py`` fail on the first torch that changes one, and hold that epochs agree without it.
"""

import os
import sys
from types import FrameType

SHARDERS = {
    "IterableDatasetShard": "would shard this data set a second time, and each rank would see a part of its part",
    "DataLoaderDispatcher": "would share out rank 0's part of this data set, and the other ranks' would be lost",
}
"""Wrappers, of Accelerate, that give each rank a part of what every rank reads, or rank 0."""


def sharder() -> str | None:
    """The wrapper that is asking for an iteration, if it would throw away what other ranks read. It is on the stack of
    the process that asks, of a forked worker, too, and where one is spawned."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = type(frame.f_locals.get("self")).__name__
        if name in SHARDERS:
            return name
        frame = frame.f_back
    return None


def answering_pipe() -> int:
    """The number of the pipe in which this worker answers; 0 where another thread reads, or torch has changed."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_worker_loop":
        frame = frame.f_back
    reader = getattr(frame.f_locals.get("data_queue") if frame is not None else None, "_reader", None)
    return 0 if reader is None else os.fstat(reader.fileno()).st_ino
