"""Who may import whom. A new module gets its line here."""

import ast
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgi2

ROOT = Path(corgi2.__file__).parent
MAY_IMPORT = {
    "version": set(),
    "sizes": set(),
    "errors": set(),
    "problem": {"errors"},
    "plan": set(),
    "progress": {"sizes"},
    "process": set(),
    "shard": {"errors"},
    "arrays": set(),
    "block": {"arrays"},
    "budget": {"block", "errors", "formats", "memory", "sizes", "stores"},
    "seal": {"errors", "shard"},
    "digest": {"arrays", "block"},
    "formats": {"arrays", "block", "digest", "errors", "memory", "process", "shard", "sizes"},
    "stores": {"errors", "process", "shard"},
    "source": {"errors", "formats", "stores"},
    "index": {"arrays", "block", "budget", "errors", "formats", "progress", "seal", "shard", "source", "stores"},
    "memory": set(),
    "recipe": {"errors", "seal"},
    "forecast": {"arrays", "block", "errors", "index", "memory", "plan", "shard", "source"},
    "journal": {"digest", "errors", "process", "seal", "shard", "source", "stores"},
    "stage": {"block", "budget", "errors", "index", "journal", "plan", "recipe", "shard", "sizes", "source", "stores"},
    "outline": {"arrays", "errors", "forecast", "index", "recipe", "shard", "sizes", "source"},
    "job": {"budget", "errors", "index", "journal", "memory", "recipe", "shard", "sizes", "stage", "stores"},
    "remains": {"errors", "index", "job", "journal", "outline", "recipe", "source", "stores"},
    "planner": {
        "job",
        "remains",
        "errors",
        "formats",
        "index",
        "journal",
        "memory",
        "outline",
        "recipe",
        "shard",
        "sizes",
        "source",
        "stage",
        "stores",
    },
    "mixer": {
        "formats",
        "budget",
        "sizes",
        "block",
        "digest",
        "errors",
        "journal",
        "memory",
        "plan",
        "process",
        "recipe",
        "shard",
        "stage",
        "stores",
    },
    "work": {"block", "budget", "errors", "index", "journal", "memory", "mixer", "recipe", "stage", "stores"},
    "ray": {"budget", "errors", "process", "sizes", "work"},
    "offline": {
        "budget",
        "block",
        "digest",
        "errors",
        "index",
        "journal",
        "mixer",
        "job",
        "planner",
        "remains",
        "process",
        "progress",
        "recipe",
        "shard",
        "sizes",
        "stage",
        "stores",
        "ray",
        "work",
    },
    "deal": {"plan"},
    "orders": {"deal", "plan"},
    "theory": set(),
    "measure": {"block", "budget", "errors", "index", "plan", "progress", "sizes", "source", "stores"},
    "catalog": {"arrays", "budget", "errors", "forecast", "index", "plan", "source", "stores"},
    "buffers": {"block", "catalog", "deal", "errors", "plan", "shard", "sizes"},
    "world": set(),
    "prices": {"errors"},
    "methods": {"prices", "sizes", "stores", "theory"},
    "advise": {"methods", "prices", "sizes"},
    "page": set(),
    "exhibit": {"advise", "measure", "methods", "page", "sizes"},
    "scout": {
        "buffers",
        "catalog",
        "deal",
        "errors",
        "forecast",
        "index",
        "job",
        "journal",
        "measure",
        "methods",
        "planner",
        "recipe",
        "source",
        "stage",
        "stores",
        "theory",
    },
    "quote": {"advise", "errors", "exhibit", "memory", "methods", "prices", "scout", "source", "stores"},
    "mixing": {"catalog", "exhibit", "index", "measure", "scout", "source", "stores"},
    "loader": {"block", "buffers", "catalog", "deal", "errors", "memory", "plan", "sizes", "world"},
    "course": set(),
    "torch": {"buffers", "course", "loader"},
    "describe": {"index", "sizes", "source", "stores"},
    "audit": {
        "arrays",
        "digest",
        "errors",
        "index",
        "job",
        "journal",
        "progress",
        "recipe",
        "shard",
        "sizes",
        "source",
        "stores",
    },
    "verdict": {"budget", "audit", "digest", "index", "progress", "sizes", "source", "stores"},
    "demo": {
        "errors",
        "index",
        "loader",
        "measure",
        "offline",
        "orders",
        "page",
        "plan",
        "progress",
        "quote",
        "source",
        "theory",
        "verdict",
    },
    "cli": {
        "demo",
        "describe",
        "errors",
        "formats",
        "index",
        "mixing",
        "offline",
        "planner",
        "problem",
        "quote",
        "recipe",
        "scout",
        "shard",
        "sizes",
        "source",
        "verdict",
        "version",
    },
    "__init__": {"describe", "errors", "index", "loader", "offline", "source", "verdict", "version"},
    "__main__": {"cli"},
}
PURE = {"plan": {"collections", "heapq", "itertools", "numpy"}, "sizes": {"re"}, "theory": {"dataclasses", "math"}}
EXTRAS = {"torch", "torchdata", "ray", "matplotlib", "scipy", "sklearn"}


def _noun(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """Full names of the modules that a file imports, at its top or within functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    ours = {name.split(".")[1] for name in _imports(path) if name.startswith("corgi2.")}
    assert ours - {_noun(path)} <= MAY_IMPORT[_noun(path)]


@pytest.mark.parametrize("noun", PURE)
def test_pure_modules_import_no_input_or_output(noun: str) -> None:
    assert {name.split(".")[0] for name in _imports(ROOT / f"{noun}.py")} <= PURE[noun]


def test_formats_know_no_object_store_library() -> None:
    assert not any("obstore" in _imports(path) for path in FILES if _noun(path) != "stores")


def test_importing_corgi2_loads_no_extra_and_no_client() -> None:
    code = "import sys, corgi2; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not (EXTRAS | {"obstore", "tqdm", "click", "pandas", "numpy", "pyarrow"}) & set(loaded)


WORK = """
import sys
import corgi2
source, target = sys.argv[1:]
corgi2.shuffle(source, target, buffer="50MB", passes=2)
assert corgi2.verify(source, target).same
assert sum(len(batch["number"]) for batch in corgi2.Loader(target, batch_size=7)) == 100
print(*sorted({name.split('.')[0] for name in sys.modules}))
"""


def test_shuffling_verifying_and_loading_need_no_pandas(tmp_path: Path) -> None:
    """Arrow would import it, where it is installed: 44 MB and a fifth of a second."""
    kinds = pa.schema(
        [("number", pa.int64()), ("flag", pa.bool_()), ("text", pa.string()), ("list", pa.list_(pa.int8()))]
    )
    rows = [
        {"number": n, "flag": n % 2 == 0, "text": None if n % 3 else "x" * n, "list": [n] * (n % 4)} for n in range(100)
    ]
    (tmp_path / "source").mkdir()
    for part in range(4):
        pq.write_table(pa.Table.from_pylist(rows[part::4], kinds), tmp_path / f"source/{part}.parquet")
    command = [sys.executable, "-c", WORK, str(tmp_path / "source"), str(tmp_path / "target")]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "pyarrow" in loaded
    assert "pandas" not in loaded


def test_exports_are_sorted_and_few() -> None:
    names = [name for name in corgi2.__all__ if not name.startswith("__")]
    assert names == sorted(names)
    assert len(names) <= 12
    assert all(hasattr(corgi2, name) for name in corgi2.__all__)
    assert not hasattr(corgi2, "no_such_name")
