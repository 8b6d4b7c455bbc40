"""The complete command for a way of shuffling, to be copied and run."""

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping

from corgi2.advice.situation import Means
from corgi2.errors import Corgi2Error
from corgi2.stores import is_secret, open_store, parse_url

Plain = str | int | float
"""What a storage option is, where it can be written down."""
_BATCH, _TRIES = 256, 100
_PATTERN = re.compile(r"[*?\[{]")


def shuffle_command(src: str, dst: str, means: Means, choices: Mapping[str, str]) -> str:
    """Words for a shell. Secrets are variables that the user sets."""
    words = ["corgi2", "shuffle", shlex.quote(src), shlex.quote(dst), "--buffer", exact_size(means.buffer)]
    for name, value in choices.items():
        words += [f"--{name}", value]
    if means.nodes > 1:
        words += ["--engine", "ray", "--address", "auto"]
    for side in ("src", "dst"):
        words += [word for option in means.options for word in (f"--{side}-option", option)]
    return " ".join(words)


def index_command(src: str, means: Means, block_bytes: int | None = None) -> str:
    words = [] if block_bytes is None else ["--block-size", exact_size(block_bytes)]
    words += [word for option in means.options for word in ("--src-option", option)]
    return " ".join(["corgi2", "index", shlex.quote(src), *words])


def reader_of(place: str, means: Means, **settings: str | int | bool) -> str:
    """What a program reads from, as it writes it; what is secret is found by the store."""
    arguments = [f'"{place}"', *(f"{name}={_code(value)}" for name, value in settings.items())]
    if means.kept:
        inner = ", ".join(f"{_code(name)}: {_code(value)}" for name, value in means.kept.items())
        arguments.append(f"src_options={{{inner}}}")
    return f"CorgiLoader({', '.join(arguments)}, batch_size={_BATCH})"


def _code(value: Plain) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def option_words(options: Mapping[str, object]) -> tuple[str, ...]:
    """``endpoint=http://…`` as a shell takes it; ``secret_access_key="$SECRET_ACCESS_KEY"``."""
    return tuple(_words(options))


def _words(options: Mapping[str, object]) -> Iterator[str]:
    for name, value in options.items():
        if is_secret(name):
            yield f'{name}="${name.upper()}"'
        elif isinstance(value, Plain):
            yield shlex.quote(f"{name}={str(value).lower() if isinstance(value, bool) else value}")


def free_folder(wanted: str | None, options: Mapping[str, object]) -> str | None:
    """The same, or the first one with a number behind it, at which nothing lies."""
    if wanted is None:
        return None
    names = (wanted, *(f"{wanted}-{number}" for number in range(2, _TRIES)))
    return next((name for name in names if not _lies(name, options)), None)


def _lies(folder: str, options: Mapping[str, object]) -> bool:
    try:
        return bool(open_store(folder, options).list(levels=1))
    except (Corgi2Error, OSError, ValueError):  # whoever writes there says so
        return False


def folder_beside(typed: str, url: str) -> str | None:
    """Where a shuffle of the typed address can go: next to its folder, named after what its shards have in common. None
    for the root of a bucket, which has nothing next to it."""
    root = parse_url(url)
    if not root.path.strip("/"):
        return None
    found = _PATTERN.search(typed)
    if found is None and not posixpath.splitext(typed.rstrip("/"))[1]:
        folder = typed.rstrip("/") if posixpath.basename(typed.rstrip("/")) not in ("", ".", "..") else url
        return f"{folder}-mixed"
    stem = posixpath.basename(typed[: found.start()] if found else posixpath.splitext(typed)[0]).strip("-_.0123456789")
    return f"{url}-{stem}-mixed" if stem else f"{url}-mixed"


def exact_size(size: int) -> str:
    """A size that is read back as the same number."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
