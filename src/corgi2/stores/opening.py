"""From an address to its store."""

from pathlib import Path

from corgi2.errors import StoreError
from corgi2.stores.store import Options, Store
from corgi2.stores.url import Url, parse_url

_KERNEL = ("proc", "sys")
"""Virtual folders of the kernel below the root. Nothing can be kept there, and links lead everywhere."""


def open_store(url: str | Url, options: Options | None = None) -> Store:
    """The store at a URL: a local path, ``file://``, ``s3://``, ``gs://``, ``az://`` or ``memory://``."""
    parsed = parse_url(url) if isinstance(url, str) else url
    if parsed.scheme == "file":
        from corgi2.stores.local import LocalStore

        if options:
            raise ValueError(f"a local folder takes no storage options (got {', '.join(options)})")
        _check_keeps_files(parsed.path)
        return LocalStore(parsed.path)
    from corgi2.stores.remote import RemoteStore

    return RemoteStore(parsed, options or {})


def _check_keeps_files(path: str) -> None:
    parts = Path(path).resolve().parts
    if len(parts) > 1 and parts[0] == "/" and parts[1] in _KERNEL:
        raise StoreError(f"{path}: lies in /{parts[1]}, a virtual file system of the kernel; name another folder")
