"""Where a cache may lie: a folder of its own, on a disk of this machine, outside of the data."""

import os
from pathlib import Path

from corgi2.errors import StoreError

MARKER = "corgi2-cache"
"""The file that says that a folder is a cache, and of which version. Without it, nothing is removed from a folder."""

_VERSION = "1\n"

_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "9p", "glusterfs", "beegfs", "gpfs", "afs", "fuse"}
"""File systems that other machines share. Locks and rename are not what they are on a disk."""

_MOUNTS = Path("/proc/self/mountinfo")


def make_place(folder: Path) -> None:
    """Make a folder for a cache, or check the one that is there."""
    if is_cache(folder):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = next((each.name for each in folder.iterdir() if MARKER not in each.name), None)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}; name another cache_dir=") from error
    if found is not None and not is_cache(folder):
        raise StoreError(f"{folder}: holds {found!r}, which is no part of a cache; name a folder of its own")
    kind = file_system(folder)
    if kind.partition(".")[0] in _REMOTE:
        raise StoreError(
            f"{folder}: lies in a file system of the network ({kind}); name a folder on a disk of this node"
        )
    temporary = folder / f".{MARKER}-{os.getpid()}"
    try:
        temporary.write_text(_VERSION)
        temporary.replace(folder / MARKER)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}; name another cache_dir=") from error


def is_cache(folder: Path) -> bool:
    """Whether a folder is a cache. One of another version is refused."""
    try:
        version = (folder / MARKER).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}; name another cache_dir=") from error
    if version != _VERSION:
        raise StoreError(f"{folder}: is a cache of another version of corgi2; remove it, or name another cache_dir=")
    return True


def check_apart(folder: Path, data: Path) -> None:
    """Refuse a cache within the data set that it is for."""
    inside, outside = Path(os.path.realpath(folder)), Path(os.path.realpath(data))
    if outside.is_dir() and inside.is_relative_to(outside):
        raise StoreError(f"{folder}: lies within the data set {data}; name a cache_dir= outside of it")


def file_system(folder: Path, mounts: Path = _MOUNTS) -> str:
    """The kind of file system that a folder lies in; empty if the machine does not tell."""
    try:
        lines, device = mounts.read_text().splitlines(), folder.stat().st_dev
    except OSError:
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = [fields[fields.index("-") + 1] for fields in map(str.split, lines) if fields[2] == number]
    return kinds[-1] if kinds else ""
