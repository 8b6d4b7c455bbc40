"""Train, validation and test shards that lie together, and how to name one kind of them."""

import glob
import posixpath
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product

from corgi2.dataset.folder import unnumbered
from corgi2.dataset.patterns import glob_pattern
from corgi2.errors import SourceError
from corgi2.formats import suffix_of
from corgi2.sizes import plural
from corgi2.stores import Entry

_WORD = re.compile(r"[a-z]+")

_SPLITS = {
    word: split
    for split, words in (
        ("train", "train training"),
        ("validation", "val valid validation dev eval"),
        ("test", "test testing"),
    )
    for word in words.split()
}


def check_splits(entries: Sequence[Entry], others: Sequence[str], typed: str, root: str, function: str) -> None:
    """Refuse several splits together: training on validation data would spoil somebody's evaluation. Splits that were
    named one by one are intended."""
    splits = Counter(_split_of(entry.path) for entry in entries)
    below = typed.removeprefix(root).lower()
    named = {_SPLITS[word] for word in _WORD.findall(below) if word in _SPLITS}
    named.add(_split_of(posixpath.basename(root)))
    if len(splits) < 2 or splits.keys() <= {"", "train"} or splits.keys() - {""} <= named:
        return
    counts = ", ".join(f"{split or 'unnamed'} ({plural(count, 'shard')})" for split, count in sorted(splits.items()))
    example = example_of(entries, others, root)
    raise SourceError(
        f"{typed}: several splits lie together: {counts}",
        hint=f"name one of them, for example: {example!r} in corgi2.{function}(…)",
        instead=(typed, example),
    )


def _split_of(path: str) -> str:
    """The split that the end of a path names: ``train`` for ``data/train-00.tar``."""
    return next((_SPLITS[word] for word in reversed(_WORD.findall(path.lower())) if word in _SPLITS), "")


def example_of(entries: Sequence[Entry], others: Sequence[str], root: str) -> str:
    """An address of one split and one kind of these shards; of train, if there is one."""
    paths = [entry.path for entry in entries]
    splits = {_split_of(path) for path in paths}
    split = "train" if "train" in splits else max(splits)
    kinds = Counter(suffix_of(path) for path in paths if _split_of(path) == split)
    suffix = kinds.most_common(1)[0][0]
    wanted = [path for path in paths if _split_of(path) == split and suffix_of(path) == suffix]
    return _covering(wanted, paths, others, root, suffix or "")


def _covering(wanted: Sequence[str], paths: Sequence[str], others: Sequence[str], root: str, suffix: str) -> str:
    """A folder or a glob that names exactly the wanted ones of these paths, or else one of them."""
    prefix = posixpath.commonprefix(wanted)
    folder = prefix.rpartition("/")[0]
    if folder and sum(path.startswith(folder + "/") for path in paths) == len(wanted):
        return f"{root}/{folder}"
    name = posixpath.commonprefix([posixpath.basename(path) for path in wanted])
    starts = (*_starts(prefix, suffix), *(f"**/{start}" for start in _starts(name, suffix)))
    for start, end in product(starts, (suffix, "")):  # names may end in their number
        matcher = re.compile(glob_pattern(f"{start}*{end}"))
        if set(filter(matcher.fullmatch, [*paths, *others])) == set(wanted):
            return f"{glob.escape(root)}/{start}*{end}"
    return f"{root}/{wanted[0]}"


def _starts(prefix: str, suffix: str) -> tuple[str, str]:
    """What a glob begins with: without the number, so that it names shards that are numbered otherwise, too, as those
    that a shuffle in place writes; or with as much of it as all have in common."""
    whole = prefix.removesuffix(suffix)
    return glob.escape(unnumbered(whole)), glob.escape(whole)
