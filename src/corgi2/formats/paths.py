"""Values named by a path: a column, a part or a key, and what lies inside it (``json.category``, ``meta.lang``)."""

from collections.abc import Collection


def split_path(path: str, known: Collection[str]) -> tuple[str, list[str]] | None:
    """The longest of the known names that a path begins with, and the keys that follow; None if it begins with none.
    So a name that contains a dot wins over a path."""
    words = path.split(".")
    for count in range(len(words), 0, -1):
        name = ".".join(words[:count])
        if name in known:
            return name, words[count:]
    return None


def is_asked(name: str, paths: Collection[str] | None) -> bool:
    """Whether one of the paths may lead into the value of this name; None asks for all values."""
    return paths is None or name in paths or any(path.startswith(f"{name}.") for path in paths)
