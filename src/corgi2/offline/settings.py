"""What the user may choose about a shuffle."""

from dataclasses import dataclass
from fractions import Fraction

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
    block_bytes: int | None = None
    range_bytes: int | None = None
    """Mix ranges of about this size, in rounds."""
    in_place: bool = False
    skip_bad: bool = False
    holdout: float | None = None
    """The share that is held out, between 0 and 1."""
    holdout_by: str | None = None
    """``record`` or ``shard``."""
    holdout_to: str | None = None
    """The address of the folder for what is held out."""

    def __post_init__(self) -> None:
        for name in (
            "buffer_bytes",
            "buffer_blocks",
            "passes",
            "shard_bytes",
            "shard_records",
            "block_bytes",
            "range_bytes",
        ):
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
            ("with_replacement", "it would drop about half of the data, forever"),
            ("skip_bad", "what is left out would be deleted"),
        ):
            if self.in_place and getattr(self, name):
                raise ValueError(f"{name}=True and in_place=True do not go together: {reason}")
        if self.shard_bytes is not None and self.shard_records is not None:
            raise ValueError("shard_size= and shard_records= both say how long shards are; give one of them")
        self._check_ranges()
        if (self.holdout, self.holdout_by, self.holdout_to) != (None, None, None):
            self._check_holdout()

    def _check_ranges(self) -> None:
        for given, name, reason in (
            (
                self.in_place,
                "in_place=True",
                "every shard is needed until the last round, so that none could be deleted",
            ),
            (self.passes > 1, f"passes={self.passes}", "one pass of ranges mixes like two; give one of them"),
            (self.with_replacement, "with_replacement=True", "a round takes every range exactly once"),
            (self.skip_bad, "skip_bad=True", "parts of a damaged shard would be in many groups; move it away first"),
        ):
            if given and self.range_bytes is not None:
                raise ValueError(f"range_size= and {name} do not go together: {reason}")

    def _check_holdout(self) -> None:
        if self.holdout is None or self.holdout_to is None:
            raise ValueError("a holdout needs a share and a folder: holdout='5%' and holdout_to='…'")
        if not 0 < self.holdout < 1:
            raise ValueError(f"holdout={self.holdout} must be a share between 0 and 1, such as 0.05 or '5%'")
        if self.holdout_by not in ("record", "shard"):
            raise ValueError(
                f"holdout_by={self.holdout_by!r}: choose holdout_by='record', a uniform sample of all records, or "
                "holdout_by='shard', whole shards, so that nothing of a held-out video or user is trained on"
            )
        if self.with_replacement:
            raise ValueError(
                "with_replacement=True draws some records often and others never; give no holdout= with it"
            )

    @property
    def record_share(self) -> Fraction:
        """The share of the records of every group; 0 if shards are held out, or nothing is."""
        return Fraction(str(self.holdout)) if self.holdout and self.holdout_by == "record" else Fraction(0)


def parse_share(value: str | float) -> float:
    """``"5%"``, ``"0.05"`` or ``0.05``."""
    text = str(value).strip()
    try:
        return float(Fraction(text.removesuffix("%")) / (100 if text.endswith("%") else 1))
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"holdout={value!r} must be a share, such as '5%' or 0.05") from error


def _argument(name: str) -> str:
    words = {
        "buffer_bytes": "buffer",
        "shard_bytes": "shard_size",
        "block_bytes": "block_size",
        "range_bytes": "range_size",
    }
    return words.get(name, name)


def as_given(name: str, value: object) -> str:
    """A setting as the user would give it: ``buffer='64MB'``, ``skip_bad=True``."""
    if name.endswith("_bytes") and isinstance(value, int) and value % 1_000_000 == 0:
        return f"{_argument(name)}='{value // 1_000_000}MB'"
    return f"{_argument(name)}='{value}'" if isinstance(value, str) else f"{_argument(name)}={value}"
