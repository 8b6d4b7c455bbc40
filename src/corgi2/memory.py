"""How much memory this process may use: the machine's, or less where a cgroup says so."""

import os
from pathlib import Path

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def usable_memory(limits: tuple[str, ...] = _CGROUP_LIMITS) -> int:
    """Bytes. A limit that cannot be read, or says ``max``, is none."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(limit for path in limits if (limit := _read(path)) is not None)])


def _read(path: str) -> int | None:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
