"""Globs and brace ranges as shells and WebDataset read them. Pure."""

import fnmatch
import glob
import re
from collections.abc import Iterable, Iterator, Sequence
from posixpath import commonprefix

SPECIAL = re.compile(r"[*?\[{]")

_BRACES = re.compile(r"\{([^{}]*)\}")

_RANGE = re.compile(r"(\d+)\.\.(\d+)")

_LARGEST_RANGE = 10_000_000

_TOKENS = re.compile(r"\*+|\[!?\]?[^\]]*\]|.", re.DOTALL)


def expand(pattern: str) -> Iterator[str]:
    """Braces as WebDataset and the shell read them: ``{000..146}`` and ``{a,b}``."""
    match = _BRACES.search(pattern)
    if match is None:
        yield pattern
        return
    for choice in _choices(match[1]):
        yield from expand(pattern[: match.start()] + choice + pattern[match.end() :])


def _choices(text: str) -> Iterable[str]:
    numbers = _RANGE.fullmatch(text)
    if numbers is None:
        if "," not in text:
            raise ValueError(f"{{{text}}} is neither a range such as {{000..146}} nor a list such as {{a,b}}")
        return text.split(",")
    first, last = int(numbers[1]), int(numbers[2])
    if last < first:
        raise ValueError(f"the range {{{text}}} ends before it begins")
    if last - first >= _LARGEST_RANGE:
        raise ValueError(f"the range {{{text}}} names more than {_LARGEST_RANGE:,} shards; use a glob")
    padded = any(len(text) > 1 and text.startswith("0") for text in numbers.groups())
    width = max(map(len, numbers.groups())) if padded else 0
    return (f"{number:0{width}d}" for number in range(first, last + 1))


def pattern_of(words: Sequence[str]) -> str:
    """What a shell may have expanded to these words: a brace range if they form one, otherwise a glob."""
    start = commonprefix(words).rstrip("0123456789")
    rests = [word[len(start) :] for word in words]
    end = commonprefix([rest[::-1] for rest in rests])[::-1].lstrip("0123456789")
    middles = [rest.removesuffix(end) for rest in rests]
    if all(re.fullmatch(r"[0-9]+", middle) for middle in middles):
        pattern = f"{start}{{{middles[0]}..{middles[-1]}}}{end}"
        if not SPECIAL.search(start + end) and int(middles[0]) <= int(middles[-1]) and [*expand(pattern)] == [*words]:
            return pattern
    return f"{glob.escape(start)}*{glob.escape(end)}"


def levels_of(patterns: Sequence[str]) -> int | None:
    """How deep the paths that these match may lie."""
    is_deep = any("**" in pattern for pattern in patterns)
    return None if is_deep else 1 + max(pattern.count("/") for pattern in patterns)


def glob_pattern(pattern: str) -> str:
    """A glob as a regular expression, as shells read it: ``*`` stays within a folder, hidden names need a dot."""
    parts = pattern.split("/")
    folders = [r"(?:(?!\.)[^/]+/)*" if part == "**" else _glob_part(part) + "/" for part in parts[:-1]]
    return "".join(folders) + (r"(?:(?!\.)[^/]+/)*(?!\.)[^/]+" if parts[-1] == "**" else _glob_part(parts[-1]))


def _glob_part(part: str) -> str:
    hidden = "" if part.startswith(".") else r"(?!\.)"
    return hidden + "".join(map(_glob_token, _TOKENS.findall(part)))


def _glob_token(text: str) -> str:
    if text[0] == "*":
        return "[^/]*"
    if text == "?":
        return "[^/]"
    return "(?!/)" + fnmatch.translate(text)[4:-3] if len(text) > 1 else re.escape(text)
