"""What a shuffle was made from is kept as it was named, so that it can be found again; secrets are not kept."""

import os
from pathlib import Path
from typing import Any

import pytest

import corgi2
from corgi2.dataset import find_source, index_source
from corgi2.offline import Journal, load_plan
from corgi2.quality.prediction import By, Prediction, predict
from corgi2.stores import open_store, secrets_of, without_secrets
from tests.conftest import S3, SECRET
from tests.sources import content, write_tars


def _splits(folder: Path) -> Path:
    """Train and validation shards side by side, as on the Hub."""
    write_tars(folder, 24, 6)
    for shard in range(4):
        (folder / f"train-{20 + shard:04d}.tar").rename(folder / f"val-{shard:04d}.tar")
    return folder


NAMES = ["train-*.tar", "train-{0000..0019}.tar", "{train-*,nothing*}.tar"]


@pytest.mark.parametrize("name", NAMES)
def test_a_split_of_a_folder_with_several_is_found_again_for_the_prediction_from_anywhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _splits(tmp_path / "in")
    monkeypatch.chdir(folder)
    corgi2.shuffle(name, "../out", buffer_blocks=5)
    monkeypatch.chdir("/")
    found = find_source(tmp_path / "out")
    predicted = predict(found, index_source(found), By(("cls",)), None)
    assert isinstance(predicted, Prediction), predicted
    assert (predicted.before.count, predicted.n) == (20, 5)
    plan, _ = load_plan(Journal(found.store, 0)) or pytest.fail("no plan")
    assert plan.named == f"{folder}/{name}"


def test_another_name_of_the_same_shards_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = _splits(tmp_path / "in"), tmp_path / "out"
    corgi2.shuffle(folder / NAMES[0], out, buffer_blocks=5)
    whole = content(out)
    (out / ".corgi2" / "c0" / "done").unlink()
    next((out / ".corgi2" / "c0" / "pass-1" / "groups").iterdir()).unlink()
    monkeypatch.chdir(tmp_path)
    report = corgi2.shuffle(f"in/{NAMES[1]}", "out", buffer_blocks=5)
    assert report.resumed_groups == report.groups - 1
    assert content(out) == whole
    with pytest.raises(corgi2.SourceError, match="train-0004.tar: has changed since"):
        corgi2.shuffle("in/train-{0000..0003}.tar", "out", buffer_blocks=5)


def test_options_are_kept_and_secrets_are_not(s3: S3, tmp_path: Path) -> None:
    store = s3.store()
    for path in sorted(write_tars(tmp_path / "in", 8, 4).iterdir()):
        store.publish(path.name, [path.read_bytes()])
    corgi2.shuffle(f"{s3.url}/train-*.tar", tmp_path / "out", buffer_blocks=4, src_options=s3.options)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "out" / ".corgi2").rglob("*") if path.is_file())
    assert SECRET.encode() not in kept
    assert b"AKIDEXAMPLE" not in kept
    plan, _ = load_plan(Journal(open_store(os.fspath(tmp_path / "out")), 0)) or pytest.fail("no plan")
    assert plan.options == {name: s3.options[name] for name in ("endpoint", "timeout", "region")}


def test_the_secrets_for_shuffled_data_open_what_it_was_made_from(s3: S3, tmp_path: Path) -> None:
    store, target = s3.store(), f"s3://{s3.bucket}/mixed"
    for path in sorted(write_tars(tmp_path / "in", 20, 4).iterdir()):
        store.publish(path.name, [path.read_bytes()])
    both: Any = {"src_options": s3.options, "dst_options": s3.options}
    corgi2.shuffle(f"{s3.url}/train-*.tar", target, buffer_blocks=5, **both)
    found = find_source(target, s3.options)
    assert isinstance(predict(found, index_source(found), By(("cls",)), s3.options), Prediction)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("secret_access_key", "x"),
        ("sas_token", "x"),
        ("AWS_SESSION_TOKEN", "x"),
        ("endpoint", "http://me:mine@host:1"),
        ("endpoint", "https://host/?sig=mine"),
        ("client_options", {"default_headers": {"authorization": "mine"}}),
    ],
)
def test_what_may_be_a_secret_is_one(name: str, value: object) -> None:
    options = {name: value, "region": "r", "retries": 8}
    assert without_secrets(options) == {"region": "r", "retries": 8}
    assert secrets_of(options) == {name: value}
