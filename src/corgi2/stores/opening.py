"""From an address to its store."""

from corgi2.stores.store import Options, Store
from corgi2.stores.url import Url, parse_url


def open_store(url: str | Url, options: Options | None = None) -> Store:
    """The store at a URL: a local path, ``file://``, ``s3://``, ``gs://``, ``az://`` or ``memory://``."""
    parsed = parse_url(url) if isinstance(url, str) else url
    if parsed.scheme == "file":
        from corgi2.stores.local import LocalStore

        if options:
            raise ValueError(f"a local folder takes no storage options (got {', '.join(options)})")
        return LocalStore(parsed.path)
    from corgi2.stores.remote import RemoteStore

    return RemoteStore(parsed, options or {})
