"""What pyproject.toml promises to work with is what it works with: `make floor` runs tests with the lowest versions."""

import importlib.metadata
import importlib.util
import os
import re
from pathlib import Path

from packaging.version import Version

from tests.floor import TOOLS, floors, tools

_ROOT = Path(__file__).parents[1]


def test_with_the_floors_everything_is_at_its_floor_and_pandas_is_not_there() -> None:
    """Elsewhere, nothing is below its floor."""
    installed = {name: Version(importlib.metadata.version(name)) for name in floors()}
    lowest = {name: Version(version) for name, version in floors().items()}
    assert all(installed[name] >= lowest[name] for name in lowest)
    if os.environ.get("CORGI2_FLOOR"):
        assert installed == lowest
        assert importlib.util.find_spec("pandas") is None
        assert importlib.util.find_spec("torch") is None


def test_every_dependency_names_its_floor_and_every_tool_is_one_of_the_tests() -> None:
    assert {"click", "numpy", "obstore", "pyarrow"} <= floors().keys()
    assert len(tools()) == len(TOOLS)


def test_ci_runs_with_the_floors_tests_that_are_there() -> None:
    assert "make floor" in (_ROOT / ".ci" / "run").read_text().splitlines()
    listed = re.search(r"^FLOOR_TESTS := (.*)$", (_ROOT / "Makefile").read_text().replace("\\\n", ""), re.MULTILINE)
    assert listed
    names = listed[1].split()
    assert {
        "cli",
        "proof",
        "test_floor.py",
        "stores/test_remote.py",
        "formats/test_parquet.py",
        "online/test_loader.py",
    } <= {*names}
    assert all((_ROOT / "tests" / name).exists() for name in names)
