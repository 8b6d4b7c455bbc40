"""Arguments of public functions: the error about a misspelt one names the nearest."""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def suggesting(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The same function, whose error about an unknown argument names the nearest one."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @wraps(function)
    def called(*values: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        for name in named:
            if name not in known:
                shown = type(values[0]) if function.__name__ == "__init__" else function  # which may be inherited
                raise TypeError(f"{shown.__name__}() has no argument {name!r}{nearest(name, known)}")
        return function(*values, **named)

    return called


def nearest(name: str, known: list[str]) -> str:
    """``; did you mean 'buffer'?``, or all names if none is near."""
    found = get_close_matches(name, known, 1)
    return f"; did you mean {found[0]!r}?" if found else f"; it takes {', '.join(known)}"
