"""URLs of stores, as people type them. Pure text: nothing is opened here."""

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://(.*)", re.DOTALL)
_SCHEMES = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "az",
    "memory": "memory",
}

NO_TEXT = "the name is not UTF-8, so it cannot be kept in an index or in another store; rename it"


@dataclass(frozen=True, slots=True)
class Url:
    """``s3://bucket/a/b`` is scheme s3, bucket ``bucket``, path ``a/b``; a local path is scheme file, no bucket."""

    scheme: str
    bucket: str
    path: str

    def __str__(self) -> str:
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.bucket}/{self.path}".rstrip("/")

    def at(self, path: str) -> "Url":
        return Url(self.scheme, self.bucket, path)


def parse_url(text: str) -> Url:
    text = os.fspath(text)
    if not text.strip():
        raise ValueError("an empty path names no data")
    if not is_text(text):
        raise ValueError(f"{printable(text)}: {NO_TEXT}")
    if text.startswith("pipe:"):
        raise ValueError(
            f"{text!r}: corgi2 runs no commands to read data; give the address itself, such as s3://bucket/train-{{0..9}}.tar"
        )
    match = _SCHEME.fullmatch(text)
    if match is None:
        return Url("file", "", _local(text))
    scheme = _SCHEMES.get(match[1].lower())
    if scheme is None:
        known = ", ".join(f"{s}://" for s in ("file", "s3", "gs", "az", "memory"))
        raise ValueError(f"{text!r}: {match[1]}:// is not supported; use a local path or one of {known}")
    if scheme == "file":
        host, slash, path = match[2].partition("/")
        if host not in ("", "localhost") or not slash:
            raise ValueError(f"{text!r}: a file URL has three slashes: file:///folder")
        return Url("file", "", _local("/" + unquote(path)))
    bucket, _, path = match[2].partition("/")
    if not bucket:
        raise ValueError(f"{text!r} names no bucket; write {scheme}://bucket/folder")
    if "@" in bucket:  # not shown, because it may hold a secret
        raise ValueError(f"{scheme}://…@…: credentials and accounts are storage options, not part of an address")
    return Url(scheme, bucket, path.strip("/"))


def is_text(path: str) -> bool:
    """Whether a path of this machine, which may hold any bytes, is valid text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(path: str) -> str:
    """A path with bytes that are not text written as ``\\xff``."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _local(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - text, where Path would drop "./" and "**"
