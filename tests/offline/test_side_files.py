"""A folder that ``datasets`` has saved is one again after a shuffle, in place too, wherever that was stopped."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from benchmarks.chaos.strikes import striking

from corgi2.errors import SourceError
from corgi2.offline.run import shuffle
from corgi2.proof.audit import audit
from corgi2.proof.comparison import verify
from tests.sources import DyingError, content

ROWS = 120
FEATURES = datasets.Features(
    {
        "n": datasets.Value("int32"),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "image": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")},
    }
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "in"
    rows = {"n": [*range(ROWS)], "label": [n % 2 for n in range(ROWS)]}
    rows["image"] = [{"bytes": bytes(n), "path": None} for n in range(ROWS)]
    data = datasets.Dataset.from_dict(rows, features=FEATURES, split="train")
    data.save_to_disk(folder, num_shards=5)
    info = json.loads((folder / "dataset_info.json").read_text())
    split = {"name": "train", "num_bytes": 10 * ROWS, "num_examples": ROWS, "shard_lengths": [24] * 5}
    info["splits"] = {"train": split | {"dataset_name": "x"}}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    return folder


def _check(folder: Path, saved: Path, rows: int = ROWS) -> datasets.Dataset:
    """It is what datasets reads, and says of itself what is true."""
    found = datasets.load_from_disk(str(folder))
    assert found.features == FEATURES
    assert len(found) == rows == len(set(found["n"]))
    state, info = (json.loads((folder / name).read_text()) for name in ("state.json", "dataset_info.json"))
    files = [each["filename"] for each in state["_data_files"]]
    assert files == sorted(path.name for path in folder.glob("*.arrow"))
    assert state["_fingerprint"] != json.loads((saved / "state.json").read_text())["_fingerprint"]
    counted = info["splits"]["train"]
    assert counted["num_examples"] == rows == sum(counted["shard_lengths"])
    assert (counted["num_bytes"], len(counted["shard_lengths"])) == (10 * rows, len(files))
    return found


def test_a_mixed_copy_is_a_saved_data_set(saved: Path, tmp_path: Path) -> None:
    shuffle(saved, tmp_path / "out", buffer_blocks=2)
    found = _check(tmp_path / "out", saved)
    assert found["n"][:] != sorted(found["n"])
    assert verify(saved, tmp_path / "out").same
    files = str(tmp_path / "out" / "*.arrow")
    loaded = datasets.load_dataset("arrow", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["n"][:] == found["n"][:]


def test_what_is_held_out_is_a_saved_data_set_too(saved: Path, tmp_path: Path) -> None:
    shuffle(saved, tmp_path / "out", buffer_blocks=2, holdout=0.25, holdout_by="record", holdout_to=tmp_path / "val")
    held = len(datasets.load_from_disk(str(tmp_path / "val")))
    _check(tmp_path / "val", saved, held)
    _check(tmp_path / "out", saved, ROWS - held)


@pytest.mark.parametrize("passes", [1, 2])
def test_in_place_it_stays_a_saved_data_set(passes: int, saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "x")
    for _ in range(2):
        shuffle(tmp_path / "x", in_place=True, buffer_blocks=2, passes=passes)
        _check(tmp_path / "x", saved)
    proof = audit(tmp_path / "x")
    assert proof.same
    assert "not covered" not in str(proof)


def test_in_place_part_of_a_saved_data_set_is_refused(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "x")
    (tmp_path / "x" / "data-00000-of-00005.arrow").unlink()
    with pytest.raises(SourceError, match="lists other shards than are shuffled, such as data-00000-of-00005.arrow"):
        shuffle(tmp_path / "x", in_place=True, buffer_blocks=2)


def test_in_place_a_cache_of_datasets_is_refused(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "x")
    (tmp_path / "x" / "state.json").unlink()
    with pytest.raises(SourceError, match="dataset_info.json: lies there without state.json"):
        shuffle(tmp_path / "x", in_place=True, buffer_blocks=2)


class _Dying:
    """A run that ends at a call of the operating system."""

    def __init__(self, moment: int) -> None:
        self._moment, self._calls = moment, itertools.count()

    def __call__(self, _name: str, call: Callable[[], Any], _arguments: tuple[Any, ...]) -> Any:
        if next(self._calls) >= self._moment:
            raise DyingError
        return call()


def _dies(folder: Path, moment: int) -> bool:
    try:
        with striking(_Dying(moment)):
            _in_place(folder)
    except DyingError:
        return True
    return False


def _in_place(folder: Path, **options: Any) -> None:
    shuffle(folder, in_place=True, buffer_blocks=2, workers=1, **options)


def _readable(folder: Path) -> bool:
    """Whether datasets would take the folder for a whole data set: then all that it lists must be there."""
    state = folder / "state.json"
    if not state.exists():
        return False
    files = [each["filename"] for each in json.loads(state.read_text())["_data_files"]]
    assert all((folder / name).exists() for name in files), "it lists shards that are gone"
    return True


@pytest.mark.slow
def test_stopped_at_any_call_in_place_it_goes_on_or_back(saved: Path, tmp_path: Path) -> None:
    """Side files never list shards that are gone; a resumed run ends with the same bytes; a restart puts them back."""
    folder = tmp_path / "x"
    shutil.copytree(saved, folder)
    _in_place(folder)
    expected, seen = content(folder), set[bool]()
    for moment in itertools.count(0, 5):
        shutil.rmtree(folder)
        shutil.copytree(saved, folder)
        if not _dies(folder, moment):
            break
        seen.add(_readable(folder))
        back = tmp_path / "back"
        shutil.copytree(folder, back)
        if not (folder / ".corgi2/c1/done").exists():
            _in_place(folder)
        assert content(folder) == expected, f"stopped at {moment}"
        _restart(back, saved)
    assert seen == {True, False}


def _restart(folder: Path, saved: Path) -> None:
    if not (folder / ".corgi2/c1/plan").exists() or (folder / ".corgi2/c1/done").exists():
        return shutil.rmtree(folder)
    (folder / ".corgi2/c1/lock").unlink(missing_ok=True)  # of this process, which lives on
    try:
        _in_place(folder, restart=True)
    except SourceError as error:
        assert "would lose" in str(error)
    else:
        _check(folder, saved)
    return shutil.rmtree(folder)
