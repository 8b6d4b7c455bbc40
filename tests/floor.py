"""The lowest versions that pyproject.toml names.

As a program (``python tests/floor.py``) it prints what to install to test with exactly these: the core at its floors,
and what its tests need, none of which brings pandas.
"""

import re
import tomllib
from pathlib import Path

TOOLS = {"hypothesis", "moto", "pytest", "pytest-timeout", "pytest-xdist", "webdataset", "zstandard"}
_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def floors() -> dict[str, str]:
    """By package."""
    return dict(requirement.split(">=") for requirement in _PROJECT["dependencies"])


def tools() -> list[str]:
    """As the test extra asks for them."""
    return [text for text in _PROJECT["optional-dependencies"]["test"] if re.split(r"[\[>]", text)[0] in TOOLS]


if __name__ == "__main__":
    print(*(f"{name}=={version}" for name, version in floors().items()), *tools())
