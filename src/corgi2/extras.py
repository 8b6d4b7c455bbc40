"""Packages that only part of corgi2 needs, and how to install them."""

from collections.abc import Iterator
from contextlib import contextmanager

from corgi2.errors import MissingPackageError


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Wraps imports of an extra's packages: if one is missing, the error says what needs it and how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        if missing.partition(".")[0] == "corgi2":
            raise
        hint = f"pip install 'corgi2[{extra}]'"
        raise MissingPackageError(f"{what} needs {missing}, which is not installed", hint=hint) from error
