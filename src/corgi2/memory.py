"""How much memory this process may use, the machine's, or less where a cgroup says so; and giving some back."""

import ctypes
import os
import sys
from pathlib import Path

import pyarrow as pa

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def usable_memory(limits: tuple[str, ...] = _CGROUP_LIMITS) -> int:
    """Bytes. A limit that cannot be read, or says ``max``, is none."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(limit for path in limits if (limit := _read(path)) is not None)])


def release_unused() -> None:
    """Return to the system what Arrow has freed in this thread. Allocators keep it, as if it were still in use."""
    pa.default_memory_pool().release_unused()


def give_back() -> None:
    """The same, and what everybody else has freed."""
    release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc; others need none
        if trim is not None:
            trim(0)


def _read(path: str) -> int | None:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
