"""What a person may choose about a shuffle."""

from dataclasses import dataclass

_LARGEST_PASSES = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What a person may choose about a shuffle."""

    buffer_bytes: int | None = None
    buffer_blocks: int | None = None
    seed: int = 0
    passes: int = 1
    with_replacement: bool = False
    shard_bytes: int | None = None
    shard_records: int | None = None
    in_place: bool = False
    skip_bad: bool = False

    def __post_init__(self) -> None:
        for name in ("buffer_bytes", "buffer_blocks", "passes", "shard_bytes", "shard_records"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{_argument(name)}={value} must be at least 1")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} is negative")
        if self.seed >= 1 << 64:
            raise ValueError(f"seed={self.seed} is not less than 2^64")
        if self.passes > _LARGEST_PASSES:
            raise ValueError(
                f"passes={self.passes}: two mix almost any data set; more than {_LARGEST_PASSES} never help"
            )
        for name, reason in (
            ("with_replacement", "it would drop about half of the data, for ever"),
            ("skip_bad", "what is left out would be deleted"),
        ):
            if self.in_place and getattr(self, name):
                raise ValueError(f"{name}=True and in_place=True do not go together: {reason}")
        if self.shard_bytes is not None and self.shard_records is not None:
            raise ValueError("shard_size= and shard_records= both say how long shards are; give one of them")


def _argument(name: str) -> str:
    words = {"buffer_bytes": "buffer", "shard_bytes": "shard_size"}
    return words.get(name, name)


def as_given(name: str, value: object) -> str:
    """A setting as somebody would give it: ``buffer='64MB'``, ``skip_bad=True``."""
    if name.endswith("_bytes") and isinstance(value, int) and value % 1_000_000 == 0:
        return f"{_argument(name)}='{value // 1_000_000}MB'"
    return f"{_argument(name)}={value}"
