"""Formats by the suffix of their shards.

A name may end in its number and the number of all instead, as TensorFlow's tools write them: the suffix of
``x.tfrecord-00003-of-00100`` lies before that, and ``x-00003-of-00100`` is TFRecord if it holds that
(`dataset.recognition`).
"""

import re

from corgi2.formats import arrow, jsonl, parquet, tar, tfrecord
from corgi2.formats.format import Format

_REGISTRY: dict[str, Format] = {
    **tar.FORMATS,
    **parquet.FORMATS,
    **arrow.FORMATS,
    **jsonl.FORMATS,
    **tfrecord.FORMATS,
}

_NUMBER = re.compile(r"(-\d{5,})-of-\d{5,}$")
_ONLY_NUMBERED = re.compile(r"(?:^|/)[^/.]+$")
_SUFFIX_OF_NUMBERED = ".tfrecord"


def suffixes() -> tuple[str, ...]:
    """All suffixes that mark a shard."""
    return tuple(_REGISTRY)


def suffix_of(path: str) -> str | None:
    """The suffix that makes a file a shard, or None. The longest counts, and the case of letters does not."""
    if is_only_numbered(path):
        return _SUFFIX_OF_NUMBERED
    lower = _NUMBER.sub("", path.lower())
    return max((suffix for suffix in _REGISTRY if lower.endswith(suffix)), key=len, default=None)


def is_only_numbered(path: str) -> bool:
    """Whether a name tells that a file is one of many, and nothing of what it holds."""
    named = _NUMBER.sub("", path)
    return named != path and _ONLY_NUMBERED.search(named) is not None


def without_total(path: str) -> str:
    """A path that ends in its number and the number of all, without the latter, and without its suffix."""
    match = _NUMBER.search(path)
    if match is None:
        return path
    suffix = "" if is_only_numbered(path) else suffix_of(path) or ""
    return path[: match.start() - len(suffix)] + match[1]


def format_of(suffix: str) -> Format:
    return _REGISTRY[suffix]
