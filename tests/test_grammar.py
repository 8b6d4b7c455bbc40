"""One file, two files: a count that is put before a noun goes through `sizes.plural`."""

import ast
import re
from pathlib import Path

import pytest

from corgi2.sizes import are, plural

NOUNS = ("shard", "record", "block", "file", "group", "reader", "rank", "node", "pass", "epoch", "class")
COUNTED = re.compile(rf"^ (?:[a-z]+ )?({'|'.join(plural(2, noun)[2:] for noun in NOUNS)})\b")
FREE = re.compile(r"(,|:,|\.0f|\b(of|than|about|so many|in|to|the))\s*$", re.IGNORECASE)
"""``3 of 10 records``, ``more than 10 shards``."""


def _counts(path: Path) -> list[str]:
    """Numbers before a noun that is always plural, in what a file says."""
    found = []
    for text in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.JoinedStr)):
        for at, (value, noun) in enumerate(zip(text.values, text.values[1:], strict=False)):
            before = text.values[at - 1] if at else None
            lead = str(before.value) if isinstance(before, ast.Constant) else ""
            if (
                isinstance(value, ast.FormattedValue)
                and isinstance(noun, ast.Constant)
                and not ast.unparse(value).endswith(":g}'")
                and "plural(" not in ast.unparse(value)
                and (match := COUNTED.match(str(noun.value)))
                and not FREE.search(lead)
            ):
                found.append(f"{path.name}:{text.lineno}: {ast.unparse(value)} {match[1]}")
    return found


@pytest.mark.parametrize("path", sorted(Path("src/corgi2").rglob("*.py")), ids=lambda path: path.name)
def test_every_count_agrees_with_its_noun(path: Path) -> None:
    assert not _counts(path)


def test_one_is_and_others_are() -> None:
    assert [plural(count, "file") for count in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert [are(count) for count in (0, 1, 2)] == ["are", "is", "are"]
