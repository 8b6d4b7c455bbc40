"""Sizes as people write them: a bare integer is bytes, KB MB GB TB are powers of 1000, KiB … of 1024."""

import re

_UNITS: dict[str, int] = {"": 1, "B": 1} | {
    f"{prefix}{infix}B": int(base**power)
    for base, infix in ((1000, ""), (1024, "i"))
    for power, prefix in enumerate("KMGT", start=1)
}

_BY_LOWER_NAME = {name.lower(): factor for name, factor in _UNITS.items()}

_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_size(text: str | int | float) -> int:
    """Bytes of ``"8GB"``, ``"1.5 GiB"``, ``"4096"``, ``4096`` or ``8e9``."""
    if isinstance(text, float) and text.is_integer():
        text = int(text)
    if isinstance(text, int):
        if isinstance(text, bool) or text < 0:
            raise ValueError(f"a size is a whole number of bytes, not negative (got {text!r})")
        return text
    match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    factor = _BY_LOWER_NAME.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(
            f"not a size: {text!r}; write bytes (4096), powers of 1000 (64KB, 8MB, 8GB, 1TB) or of 1024 (64KiB, 8GiB)"
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


def format_size(count: int) -> str:
    """A size for people, in powers of 1000: ``13.8 MB``."""
    value = float(count)
    units = ["B", "KB", "MB", "GB", "TB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    digits = 0 if units[0] == "B" or value >= 100 else 1
    return f"{value:.{digits}f} {units[0]}"


def number(value: float) -> str:
    """With three digits that count, and no powers of ten."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
