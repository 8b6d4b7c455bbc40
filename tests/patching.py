"""Changing a name wherever modules have taken it to."""

import sys

import pytest


def patch_everywhere(patch: pytest.MonkeyPatch, below: str, **values: object) -> None:
    """In all modules of a package that know it by that name; at least one must."""
    for name, value in values.items():
        knowing = [
            module
            for path, module in list(sys.modules.items())
            if f"{path}.".startswith(f"{below}.") and name in vars(module)
        ]
        assert knowing, f"no module below {below} knows {name}"
        for module in knowing:
            patch.setattr(module, name, value)
