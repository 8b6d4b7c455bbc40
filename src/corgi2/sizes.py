"""Numbers, sizes and times as people write and read them, in one style for all of corgi2's output.

A bare integer means bytes; K M G T P are powers of 1000 and Ki Mi Gi Ti Pi powers of 1024, with or without a B.
"""

import re
from decimal import Decimal

_UNITS: dict[str, int] = {
    "": 1,
    "b": 1,
    **{
        f"{prefix}{infix}{ending}": int(base**power)
        for base, infix in ((1000, ""), (1024, "i"))
        for power, prefix in enumerate("kmgtp", start=1)
        for ending in ("", "b")
    },
}
_NOTHING = 1e-6
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_size(text: str | int | float) -> int:
    """The number of bytes in ``"8GB"``, ``"8G"``, ``"1.5 GiB"``, ``"4096"``, ``4096`` or ``8e9``."""
    if isinstance(text, float) and text.is_integer():
        text = int(text)
    if isinstance(text, int):
        if isinstance(text, bool) or text < 0:
            raise ValueError(f"a size is a whole number of bytes, not negative (got {text!r})")
        return text
    match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    factor = _UNITS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(
            f"not a size: {text!r}; write bytes (4096), powers of 1000 (64KB, 8G, 27T) or of 1024 (64KiB, 8Gi)"
        )
    whole, _, fraction = match[1].partition(".")
    scale = int(10 ** len(fraction))
    total = int(whole + fraction) * factor
    if total % scale and factor == 1:
        raise ValueError(f"a size is a whole number of bytes (got {text!r})")
    return total // scale


def plural(count: int, noun: str) -> str:
    """``1 group``, ``2 groups``, ``2 passes``."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def are(count: int) -> str:
    """``is`` for one, ``are`` for any other count."""
    return "is" if count == 1 else "are"


def format_size(count: float) -> str:
    """A size for people, in powers of 1000: ``13.8 MB``."""
    value = float(count)
    units = ["B", "KB", "MB", "GB", "TB", "PB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    digits = 0 if units[0] == "B" or value >= 100 else 1
    return f"{value:.{digits}f} {units[0]}"


def format_seconds(seconds: float) -> str:
    """A time for people: ``0.25 s``, ``12 s``, ``3.5 min``, ``2.1 h``, ``1,200 h``."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{format_number(seconds / length, digits=2)} {unit}"
    return f"{format_number(seconds, digits=2)} s"


def format_number(value: float, digits: int = 3) -> str:
    """With this many significant digits, and without powers of ten: ``0.00247``, ``1.5``, ``1,200``. What rounding
    leaves of nothing is ``0``."""
    if abs(value) < _NOTHING:
        return "0"
    if abs(value) >= 10**digits - 0.5:
        return f"{value:,.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):f}"
