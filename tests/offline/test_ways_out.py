"""What a refusal names as the way out is one."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import corgi2
from tests.sources import write_source


@pytest.mark.parametrize("side", ["out", "val"])
@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_a_finished_target_that_lost_a_shard_names_what_to_delete_and_is_then_made_again(
    side: str, harm: str, tmp_path: Path
) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 8)
    choices: dict[str, Any] = {"buffer_blocks": 4, "buffer": "1MB"}
    choices |= {"holdout": "25%", "holdout_to": tmp_path / "val", "holdout_by": "record"} if side == "val" else {}
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", **choices)
    shard = min((tmp_path / side).glob("*.jsonl"))
    if harm == "gone":
        shard.unlink()
    else:
        shard.write_bytes(b"{}\n")
    with pytest.raises(corgi2.SourceError) as caught:
        corgi2.shuffle(tmp_path / "in", tmp_path / "out", **choices)
    assert shard.name in str(caught.value)
    named = str(caught.value.hint).split("or delete ")[1].split(" and give")[0].split(" and ")
    assert [Path(folder) for folder in named] == [tmp_path / "out", *([tmp_path / "val"] if side == "val" else [])]
    for folder in named:
        shutil.rmtree(folder)
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", **choices)
    assert corgi2.verify(tmp_path / "out")


@pytest.mark.parametrize("label", [(), "cls"])
def test_what_was_held_out_is_said_to_be_with_and_without_a_label(label: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for shard in range(8):
        lines = "".join(f'{{"cls": {shard}, "id": {row}}}\n' for row in range(20))
        (tmp_path / "in" / f"{shard}.jsonl").write_text(lines)
    held: dict[str, Any] = {"holdout": "25%", "holdout_to": tmp_path / "val", "holdout_by": "record"}
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", buffer="1MB", **held)
    found = corgi2.inspect(tmp_path / "val", label=label)
    assert "this is for validation" in found.as_text()
    assert str(found.as_json()["held_out_of"]).endswith("out")
    assert "validation" not in corgi2.inspect(tmp_path / "out", label=label).as_text()
