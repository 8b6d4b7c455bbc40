"""The layers of the source tree, as `docs/how-it-works.md` draws them."""

import ast
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgi2

ROOT = Path(corgi2.__file__).parent
LAYERS = """
    version errors arguments sizes host theory pages
    order progress extras
    records
    stores formats
    budget caching
    dataset
    offline online
    torch proof quality
    advice hf lightning
    demo
    cli
"""
LEVEL = {noun: level for level, line in enumerate(LAYERS.splitlines()) for noun in line.split()}
PURE = {
    "__future__",
    "collections",
    "corgi2",
    "dataclasses",
    "decimal",
    "heapq",
    "itertools",
    "math",
    "numpy",
    "re",
    "typing",
}
EXTRAS = {"torch", "torchdata", "accelerate", "transformers", "lightning", "ray", "matplotlib", "scipy", "sklearn"} | {
    "google_crc32c"
}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or not path.name.startswith("__"))


def _noun(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """Full names of the modules that a file imports, at its top or within functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "corgi2":
            found.update(f"corgi2.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def _others(path: Path) -> list[list[str]]:
    """What a file imports of other nouns than its own, as parts: noun, module, …"""
    parts = [name.split(".")[1:] for name in _imports(path) if name.startswith("corgi2.")]
    return [each for each in parts if each[0] != _noun(path)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_up_the_layers(path: Path) -> None:
    assert [each for each in _others(path) if LEVEL[each[0]] >= LEVEL[_noun(path)]] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_packages_use_each_other_through_their_front_doors(path: Path) -> None:
    assert [each for each in _others(path) if len(each) > 1] == []


@pytest.mark.parametrize("package", sorted(path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()))
def test_a_front_door_says_what_it_promises_and_defines_nothing(package: str) -> None:
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    assert ast.get_docstring(tree)
    assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)


def test_no_module_bears_the_name_of_what_its_package_offers() -> None:
    for init in ROOT.glob("*/__init__.py"):
        modules = {path.stem for path in init.parent.glob("*.py")}
        offered = {
            alias.name
            for node in ast.walk(ast.parse(init.read_text()))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert not modules & offered, init


@pytest.mark.parametrize("path", [path for path in FILES if _noun(path) in ("order", "sizes", "theory")], ids=str)
def test_arithmetic_does_no_input_or_output(path: Path) -> None:
    assert {name.split(".")[0] for name in _imports(path)} <= PURE


def test_only_stores_know_the_object_store_library() -> None:
    assert {_noun(path) for path in FILES if "obstore" in path.read_text()} == {"stores"}


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
    assert len(names) <= 20
    assert set(names) <= {*dir(corgi2)}
    assert not any((ROOT / name).exists() or (ROOT / f"{name}.py").exists() for name in names)
    assert all(hasattr(corgi2, name) for name in corgi2.__all__)
    assert not hasattr(corgi2, "no_such_name")
