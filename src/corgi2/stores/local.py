"""Files of this machine, through the operating system.

Reads go straight into the caller's buffer, and large writes from memory to the disk, past the page cache. A file is
published under a temporary name in its folder, flushed to the disk, renamed, and the folder flushed: after a crash it
is there whole or not at all. Temporary files left by a crash are never listed. A file is compared with its listing
while it is open, before it is read and after.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from corgi2.errors import ChangedError, StoreError
from corgi2.host import HOST, birth_of, is_alive
from corgi2.records import Buffer
from corgi2.stores.direct import Direct
from corgi2.stores.drafts import Drafts, flush_folder
from corgi2.stores.store import CHANGED, GONE, PART_BYTES, Entry, File, Requests, Store
from corgi2.stores.url import NO_TEXT, is_text, printable

_TEMPORARY = ".corgi2-tmp"

_FULL = (errno.ENOSPC, errno.EDQUOT)

_HOST = f"{zlib.crc32(HOST.encode()):08x}"

_LEFT_OVER = re.compile(rf"\.[0-9a-f]+-([0-9a-f]{{8}})-(\d+)(?:-(\d+))?{re.escape(_TEMPORARY)}")


@dataclass(slots=True)
class LocalStore:
    url: str
    requests: Requests = field(default_factory=Requests)

    @property
    def is_local(self) -> bool:
        return True

    @property
    def connections(self) -> int:
        return 1

    @property
    def ranges(self) -> int:
        return 1

    def list(self, folder: str = "", levels: int | None = None) -> list[Entry]:
        self.requests.count(lists=1)
        root = Path(self.url)
        above = len(os.path.join(root, ""))  # noqa: PTH118 - text, as there may be many
        with _clear_errors():
            found = [
                self._listed(each.path[above:], each.stat(), is_linked or each.is_symlink())
                for each, is_linked in _walk(root / folder, levels)
                if _is_there(each)
            ]
        return sorted(found, key=lambda entry: entry.path)

    def head(self, path: str) -> Entry | None:
        self.requests.count(lists=1)
        file = Path(self.url, path)
        with _clear_errors(file):
            try:
                return self._listed(path, file.stat(), file.is_symlink()) if not file.is_dir() else None
            except (FileNotFoundError, NotADirectoryError):
                return None

    def readinto(self, entry: Entry, start: int, buffer: memoryview, ranges: int = 1) -> None:  # noqa: ARG002
        self.requests.count(reads=1)
        with _clear_errors(self._place(entry.path)), self._opened(entry) as fd:
            done = 0
            while done < len(buffer):
                got = os.preadv(fd, [buffer[done:]], start + done)
                if got == 0:
                    raise ChangedError(
                        f"{self.url}/{entry.path}: ends at byte {start + done}, expected {start + len(buffer)}: "
                        "it changed after it was listed; run the command again"
                    )
                done += got

    @contextlib.contextmanager
    def _opened(self, entry: Entry) -> Iterator[int]:
        """The file that was listed, before it is read and after."""
        try:
            fd = os.open(self._place(entry.path), os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            raise ChangedError(f"{self.url}/{entry.path}: {GONE}") from None
        try:
            self._check_listed(entry, os.fstat(fd))
            yield fd
            self._check_listed(entry, os.fstat(fd))
        finally:
            os.close(fd)

    def _place(self, path: str) -> str:
        """Where a file lies: as text, since there may be many."""
        return os.path.join(self.url, path)  # noqa: PTH118

    def _listed(self, path: str, status: os.stat_result, is_linked: bool) -> Entry:
        if not is_text(path):
            raise StoreError(f"{printable(f'{self.url}/{path}')}: {NO_TEXT}")
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(f"{self.url}/{path}: is not a regular file; remove it, or name the shards by a glob")
        file = File(status.st_dev, status.st_ino, status.st_ctime_ns, is_linked)
        return Entry(path, status.st_size, _etag(status), file)

    def _check_listed(self, entry: Entry, status: os.stat_result) -> None:
        is_same = not (entry.is_listed and entry.etag) or entry.etag == _etag(status)
        if not is_same or (entry.file is not None and entry.file.changed_ns != status.st_ctime_ns):
            raise ChangedError(f"{self.url}/{entry.path}: {CHANGED}")

    def publish(self, path: str, pieces: Iterable[Buffer], part_bytes: int = PART_BYTES) -> Entry:  # noqa: ARG002
        self.requests.count(writes=1)
        with self._written(path, pieces) as (temporary, final), _clear_errors(final):
            status = temporary.stat()  # another process may consume the file soon
            temporary.replace(final)
            flush_folder(final.parent)
            return Entry(path, status.st_size, _etag(status))

    def publish_together(self, files: Iterable[tuple[str, Iterable[Buffer]]]) -> Sequence[Entry]:
        """All are written, then all flushed, then all renamed, then the folders flushed."""
        paths, folders = [], set()
        with Drafts(_temporary_name) as drafts:
            for path, pieces in files:
                final, data = self._place(path), b"".join(map(bytes, pieces))
                folder = os.path.dirname(final)  # noqa: PTH120
                with _clear_errors(final):
                    if folder not in folders:
                        _make_folder(Path(folder))
                    drafts.write(folder, final, data)
                folders.add(folder)
                paths.append(path)
                self.requests.count(writes=1)
            with _clear_errors(self.url):
                statuses = drafts.publish()
            for folder in folders:
                with _clear_errors(folder):
                    flush_folder(folder)
        return [Entry(path, status.st_size, _etag(status)) for path, status in zip(paths, statuses, strict=True)]

    def create(self, path: str, data: bytes) -> bool:
        self.requests.count(writes=1)
        with self._written(path, [data]) as (temporary, final), _clear_errors(final):
            try:
                final.hardlink_to(temporary)
            except FileExistsError:
                return False
            flush_folder(final.parent)
            return True

    def delete(self, path: str) -> None:
        self.requests.count(deletes=1)
        file = Path(self.url, path)
        with _clear_errors(file):
            file.unlink(missing_ok=True)

    def free_bytes(self) -> int:
        folder = Path(self.url).absolute()
        while not folder.exists():
            folder = folder.parent
        with _clear_errors(folder):
            status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize

    def check_writable(self) -> None:
        folder = Path(self.url).absolute()
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            raise StoreError(f"{folder}: is a file, not a folder; name another one to write to")
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            raise StoreError(f"{folder}: lies in a read-only file system; name a folder in another one")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StoreError(f"{folder}: is not writable for you; name another folder, or ask for permission")

    def keeps_versions(self, path: str) -> bool:  # noqa: ARG002
        return False

    def holds(self, other: Store, levels: int | None = None) -> bool:
        if not isinstance(other, LocalStore):
            return False
        with _clear_errors():
            within: set[tuple[int, int]] = set()
            for _ in _scanned(Path(self.url), levels, within):
                pass
            return not within.isdisjoint(_around(other.url))

    def sweep(self, folder: str = "") -> None:
        for where, _, names in os.walk(Path(self.url, folder)):
            for name in filter(_is_left_over, names):
                with contextlib.suppress(OSError):  # another run may sweep, too
                    Path(where, name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _written(self, path: str, pieces: Iterable[Buffer]) -> Iterator[tuple[Path, Path]]:
        final = Path(self.url, path)
        temporary = final.with_name(_temporary_name())
        try:
            with _clear_errors(final):
                _make_folder(final.parent)
                file = temporary.open("xb", buffering=0)
            with file:
                with _clear_errors(final):
                    direct = Direct(file.fileno())
                for piece in pieces:
                    with _clear_errors(final):
                        direct.write(memoryview(piece).cast("B"))
                with _clear_errors(final):
                    direct.finish()
                    os.fsync(file.fileno())
            yield temporary, final
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def _temporary_name() -> str:
    return f".{secrets.token_hex(8)}-{_owner(os.getpid())}{_TEMPORARY}"


@lru_cache(maxsize=1)
def _owner(pid: int) -> str:
    return "-".join(filter(None, (_HOST, str(pid), birth_of(pid))))


def _walk(folder: Path, levels: int | None) -> Iterator[tuple["os.DirEntry[str]", bool]]:
    """Files below a folder, and whether a linked folder leads there; each folder once, so that loops of links end."""
    for each, is_linked in _scanned(folder, levels, set()):
        if not each.is_dir() and not each.name.endswith(_TEMPORARY):
            yield each, is_linked


def _scanned(
    folder: Path, levels: int | None, seen: set[tuple[int, int]], is_linked: bool = False
) -> Iterator[tuple["os.DirEntry[str]", bool]]:
    """What lies below a folder, and which folders were seen. One that was deleted just now holds nothing."""
    if levels == 0:
        return
    try:
        identity = _identity(folder)
        if identity in seen:
            return
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    seen.add(identity)
    for each in found:
        yield each, is_linked
        if each.is_dir():
            below = None if levels is None else levels - 1
            yield from _scanned(Path(each.path), below, seen, is_linked or each.is_symlink())


def _identity(folder: Path) -> tuple[int, int]:
    """The same for all names of a folder: links, bind mounts, other letter cases if case is ignored."""
    status = folder.stat()
    return status.st_dev, status.st_ino


def _around(url: str) -> Iterator[tuple[int, int]]:
    """A folder and its parents, as far as they exist."""
    folder = Path(os.path.realpath(url))
    for each in (folder, *folder.parents):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            yield _identity(each)


def _is_there(entry: "os.DirEntry[str]") -> bool:
    """False for a file that was deleted meanwhile; a link to nothing is an error. The answer is cached in the entry."""
    try:
        entry.stat()
    except FileNotFoundError:
        if entry.is_symlink():
            raise StoreError(f"{entry.path}: is a link to nothing; remove it, or restore what it names") from None
        return False
    return True


def _etag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"


def _is_left_over(name: str) -> bool:
    """Whether a file is temporary and belongs to a dead process of this machine."""
    match = _LEFT_OVER.fullmatch(name)
    return match is not None and match[1] == _HOST and not is_alive(int(match[2]), match[3] or "")


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        flush_folder(folder.parent)


@contextlib.contextmanager
def _clear_errors(file: Path | str | None = None) -> Iterator[None]:
    """Turns errors of the operating system into one line that names the file."""
    try:
        yield
    except OSError as error:
        kind = "space" if error.errno in _FULL else None
        raise StoreError(f"{file or error.filename}: {error.strerror or error}", kind=kind) from error
