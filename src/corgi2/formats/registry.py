"""Formats by the suffix of their shards."""

from corgi2.formats import arrow, jsonl, parquet, tar
from corgi2.formats.format import Format

_REGISTRY: dict[str, Format] = {
    **tar.FORMATS,
    **parquet.FORMATS,
    **arrow.FORMATS,
    **jsonl.FORMATS,
}


def suffixes() -> tuple[str, ...]:
    """All suffixes that mark a shard."""
    return tuple(_REGISTRY)


def suffix_of(path: str) -> str | None:
    """The suffix that makes a file a shard, or None. The longest counts, and the case of letters does not."""
    lower = path.lower()
    return max((suffix for suffix in _REGISTRY if lower.endswith(suffix)), key=len, default=None)


def format_of(suffix: str) -> Format:
    return _REGISTRY[suffix]
