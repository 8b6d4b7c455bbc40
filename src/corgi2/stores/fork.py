"""obstore in a forked child.

obstore runs its requests on threads of one runtime, a static of its native module. Threads do not survive a
fork, so a child that inherits a used runtime waits forever, even with new clients. PyTorch's DataLoader forks
its workers by default, after the parent has read the index. So a child whose parent had used obstore loads the
native module a second time, from an anonymous copy in memory: a fresh runtime, nothing left on disk.

Needed with obstore 0.11 to 0.12.1, the newest in November 2026. Once a version can restart its runtime after a fork,
this module, and what tests/stores/test_fork.py says about copies, can go.
"""

import importlib
import importlib.util
import os
import sys
import threading
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

_NATIVE = "obstore._obstore"
_loaded_by: int | None = None
_original: str | None = None
_loading = threading.Lock()


def _after_fork() -> None:
    """The parent may have used obstore without corgi2 as well."""
    global _loaded_by
    if _NATIVE in sys.modules and _loaded_by is None:
        _loaded_by = os.getppid()
    _loading.release()


# Held across a fork, so that no child inherits it locked by a thread that it does not have.
os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_after_fork)


def obstore() -> ModuleType:
    """The obstore package, with a runtime that this process may use."""
    global _loaded_by
    if _loaded_by != os.getpid():
        with _loading:
            if _loaded_by not in (None, os.getpid()):
                _load_again()
            for name in ("obstore", "obstore.store", "obstore.exceptions"):
                importlib.import_module(name)
            _loaded_by = os.getpid()
    return sys.modules["obstore"]


def _load_again() -> None:
    global _original
    _original = _original or sys.modules[_NATIVE].__file__
    if _original is None or not hasattr(os, "memfd_create"):
        raise RuntimeError(
            "object stores cannot be used in a forked process on this platform; "
            'start workers with multiprocessing_context="spawn"'
        )
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        del sys.modules[name]
    copy = os.memfd_create("obstore")
    try:
        with open(_original, "rb") as file:  # noqa: PTH123 - a descriptor is wanted
            while os.sendfile(copy, file.fileno(), None, 1 << 30):
                pass
        finder = _Finder(f"/proc/self/fd/{copy}")
        sys.meta_path.insert(0, finder)
        try:
            importlib.import_module("obstore")
        finally:
            sys.meta_path.remove(finder)
    finally:
        os.close(copy)


class _Finder:
    """Finds obstore's native module in the given file, and nothing else."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        if name != _NATIVE:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=ExtensionFileLoader(name, self._path))
