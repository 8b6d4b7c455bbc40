"""What a plan says is what the shuffle and the loader then do."""

import ast
import html
import json
import os
import re
import shlex
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import corgi2
from corgi2.advice import plan
from corgi2.advice.prices import NOTHING
from corgi2.advice.recommendation import advise
from corgi2.advice.situation import Means, Shape
from corgi2.cli import program  # noqa: F401 - which knows all commands
from corgi2.cli.root import cli
from corgi2.sizes import format_number
from corgi2.stores import is_secret
from tests.conftest import S3
from tests.shards import parquet_of, tar_of

QUICK: dict[str, Any] = {"latency": 1, "bandwidth": "1GB"}


def _write(folder: Path, suffix: str, counts: list[int], classes: int = 4) -> Path:
    """Shards of so many records, each of one class, and of one size in memory."""
    folder.mkdir()
    for shard, count in enumerate(counts):
        rows = [{"x": os.urandom(300).hex(), "cls": shard % classes, "id": 1000 * shard + row} for row in range(count)]
        if suffix == ".parquet":
            data = parquet_of(pa.Table.from_pylist(rows), row_group_size=100, use_dictionary=False)
        elif suffix == ".tar":
            data = tar_of([(f"{row['id']:06d}.json", json.dumps(row).encode()) for row in rows])
        else:
            data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (folder / f"part-{shard:02d}{suffix}").write_bytes(data)
    return folder


def test_an_index_of_parquet_leaves_the_loaders_window_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for shard in range(12):
        table = pa.table({"word": [f"word{row % 7}" * 9 for row in range(3_000)], "n": range(3_000)})
        (tmp_path / "in" / f"part-{shard:02d}.parquet").write_bytes(parquet_of(table))
    bare = corgi2.Loader(tmp_path / "in", buffer="3MB").world(1).window
    corgi2.index(tmp_path / "in")
    assert bare == corgi2.Loader(tmp_path / "in", buffer="3MB").world(1).window < 12


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_ranges_are_planned_as_they_are_read(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ranged", "table"):
        monkeypatch.setattr(f"corgi2.advice.{module}.RANGE_BYTES", 64_000)
    source = _write(tmp_path / "in", suffix, [800] * 12)
    options = {"buffer": 1_500_000, "online_buffer": "9MB", **QUICK}
    if suffix == ".jsonl":
        guessed = next(each for each in plan(source, **options).methods if each.way.range_bytes)
        corgi2.index(source, block_size=16_000)
    advice = plan(source, **options)
    found = next(each for each in advice.methods if each.way.range_bytes)
    report = corgi2.shuffle(source, tmp_path / "out", buffer=1_500_000, range_size=64_000)
    planned = found.groups, found.n, found.offline_reads, found.offline_writes, found.objects
    assert planned == (report.groups, report.n, report.reads, report.writes, report.shards)
    assert found.is_exact
    assert 0.2 * next(each.H for each in advice.methods if each.name == "CorgiPile") > found.H
    assert suffix == ".parquet" or guessed.offline_bytes > found.offline_bytes, "a scan before"
    assert not any("requests are estimated" in note for note in advice.notes)


@pytest.mark.parametrize("suffix", [".parquet", ".tar", ".jsonl"])
@pytest.mark.parametrize("counts", [[400] * 8, [400, 200, 500, 300] * 2])
def test_the_window_of_a_plan_is_that_of_the_loader(suffix: str, counts: list[int], tmp_path: Path) -> None:
    source = _write(tmp_path / "in", suffix, counts)
    advice = plan(source, buffer=2_500_000, online_buffer=2_500_000, h_d=10.0, **QUICK)
    corgi2.shuffle(source, tmp_path / "out", buffer=2_500_000)
    for method in advice.methods:
        if method.name in ("CorgiPile", "Corgi², 1 pass, random picks", "Corgi², 1 pass, even picks"):
            folder = tmp_path / ("in" if method.command is None else "out")
            loader = corgi2.Loader(folder, buffer=2_500_000, picks="random" if method.way.picks == "random" else "even")
            assert method.window == loader.world(1).window, method.name


def test_a_buffer_that_a_plan_finds_too_small_is_too_small_and_the_one_that_it_names_is_accepted(
    tmp_path: Path,
) -> None:
    source = _write(tmp_path / "in", ".parquet", [400] * 8)
    (note,) = (each for each in plan(source, online_buffer=300_000, **QUICK).notes if each.startswith("CorgiPile is"))
    with pytest.raises(corgi2.SourceError, match="too small"):
        corgi2.Loader(source, buffer=300_000)
    named = note.split("online_buffer='")[1].split("'")[0]
    assert plan(source, online_buffer=named, **QUICK).recommended.window
    assert corgi2.Loader(source, buffer=named).world(1).window


@pytest.mark.parametrize(("buffer", "shards"), [("80KB", 8), ("120KB", 8), ("300KB", 8), ("80KB", 110)])
def test_no_command_of_a_plan_is_refused_by_the_shuffle(buffer: str, shards: int, tmp_path: Path) -> None:
    source = _write(tmp_path / "in", ".jsonl", [100] * shards)
    advice = plan(source, buffer=buffer, online_buffer="1MB", h_d=50.0, **QUICK)
    assert advice.recommended.command is None or advice.recommended.n > 1 or advice.recommended.way.passes > 1
    for method in advice.methods:
        if method.command is not None:
            words = [*shlex.split(method.command)[1:], "--dry-run"]
            result = CliRunner().invoke(cli, words, catch_exceptions=False)
            assert result.exit_code == 0, result.output


def test_numbers_alone_never_lead_to_a_pass_that_mixes_nothing() -> None:
    advice = plan(records=10**9, bytes="27TB", shards=27_000, buffer="1GB", online_buffer="4GB")
    assert all(method.way.passes != 1 or method.way.range_bytes for method in advice.methods)
    assert "nothing is mixed" in " ".join(advice.notes)


@pytest.mark.parametrize("kind", ["record", "shard"])
def test_what_was_held_out_is_for_validation(kind: str, tmp_path: Path) -> None:
    source, held = _write(tmp_path / "in", ".jsonl", [100] * 8), tmp_path / "val"
    corgi2.shuffle(source, tmp_path / "out", buffer="500KB", holdout="25%", holdout_to=held, holdout_by=kind)  # type: ignore[arg-type]
    said = plan(held, buffer="500KB", **QUICK).as_text()
    assert f"held out for validation, and {tmp_path / 'out'} is the rest" in said
    assert f'validate from CorgiLoader("{held}", shuffle=False' in said
    assert "train from" not in said
    assert "for validation" in corgi2.inspect(held, label="cls").as_text()
    assert "validation" not in plan(tmp_path / "out", buffer="500KB", **QUICK).as_text()


@pytest.mark.parametrize("in_place", [False, True])
def test_mixed_data_without_a_label_is_judged_by_its_own_shuffle(in_place: bool, tmp_path: Path) -> None:
    """At the worst, which one class for every block is."""
    source = _write(tmp_path / "in", ".jsonl", [100] * 16, classes=16)
    worst = plan(source, buffer="600KB", online_buffer="300KB", **QUICK)
    target = None if in_place else tmp_path / "out"
    corgi2.shuffle(source, target, buffer="600KB", in_place=in_place)
    advice = plan(target or source, buffer="600KB", online_buffer="300KB", **QUICK)
    predicted = next(each for each in worst.methods if each.name == "Corgi², 1 pass, even picks")
    assert advice.recommended.h == pytest.approx(predicted.h, rel=0.1)
    assert pytest.approx(predicted.R, rel=0.3) == advice.recommended.R
    assert "its shuffle left" in advice.as_text()
    assert "taken as b" not in advice.as_text()


def test_a_target_that_is_there_already_is_not_suggested(tmp_path: Path) -> None:
    source = _write(tmp_path / "in", ".jsonl", [100] * 8)
    for number in ("", "-2", "-3"):
        advice = plan(source, buffer="500KB", **QUICK)
        assert advice.shape.target == f"{source}-mixed{number}"
        corgi2.shuffle(source, advice.shape.target, buffer="500KB")


def _training(advice: Any) -> Any:
    """The expression that a plan prints, as Python reads it."""
    (line,) = (each for each in advice.then if "train from " in each)
    outer = ast.parse(line.split("train from ")[1].split("; even")[0], mode="eval").body
    assert isinstance(outer, ast.Call)
    return {word.arg: ast.literal_eval(word.value) for word in outer.keywords if word.arg}


def test_what_a_plan_says_to_train_from_is_code_with_all_that_it_needs(s3: S3, tmp_path: Path) -> None:
    store = s3.store()
    for path in sorted(_write(tmp_path / "in", ".jsonl", [100] * 8).iterdir()):
        store.publish(path.name, [path.read_bytes()])
    words = [word for name, value in s3.options.items() for word in ("--src-option", f"{name}={value}")]
    advice = plan(s3.url, src_options=s3.options, prices="aws", **QUICK)
    asked = _training(advice)
    assert asked["batch_size"] > 1
    assert asked["src_options"] == {name: value for name, value in s3.options.items() if not is_secret(name)}
    assert f"first, once: corgi2 index {s3.url} --src-option" in " ".join(advice.then)
    shown = CliRunner().invoke(cli, ["plan", s3.url, *words, "--prices", "aws"], catch_exceptions=False).output
    assert "src_options={" in shown
    assert "index" not in " ".join(plan(tmp_path / "in", **QUICK).then), "a folder is counted on first use"


def test_the_command_line_speaks_of_options_everywhere(tmp_path: Path) -> None:
    """In what is JSON, and on pages."""
    source, page = str(_write(tmp_path / "in", ".jsonl", [100] * 8)), tmp_path / "page.html"
    for words in (["plan", source], ["inspect", source, "--label", "id"]):
        for more in ([], ["--json"]):
            run = CliRunner().invoke(cli, [*words, *more, "--html", str(page)], catch_exceptions=False)
            for said in (run.stdout, html.unescape(page.read_text())):
                assert re.findall(r"(?<![-\w])(?:label|feature|prices|node_price|buffer)=(?!\")", said) == []
    assert "--prices aws" in CliRunner().invoke(cli, ["plan", source, "--json"]).stdout


def test_a_buffer_that_is_not_given_is_this_machines_and_said_to_be() -> None:
    numbers: dict[str, Any] = {"records": 10**6, "bytes": "1GB", "shards": 100}
    assert any("memory of this machine" in note for note in plan(**numbers, nodes=16).notes)
    assert not any("memory of this machine" in note for note in plan(**numbers, nodes=16, buffer="1GB").notes)
    with pytest.raises(ValueError, match="nodes is a whole number"):
        plan(**numbers, nodes=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("label", "sample", "is_exact"), [((), 64, False), ("json.cls", 64, True), ("json.cls", 3, False)]
)
def test_a_count_is_exact_or_said_to_be_estimated(label: Any, sample: int, is_exact: bool, tmp_path: Path) -> None:
    source = _write(tmp_path / "in", ".tar", [100, 80, 90, 70])
    said = plan(source, label=label, sample=sample, **QUICK).as_text()
    assert ("records are estimated" in said) == (": about " in said) == (not is_exact)
    assert ("340 records" in said) >= is_exact


def test_no_note_asks_for_a_label_that_was_given(tmp_path: Path) -> None:
    source = _write(tmp_path / "in", ".jsonl", [100] * 8)
    notes = " ".join(plan(source, label="id", **QUICK).notes)
    assert "worst is assumed" in notes
    assert "label= measures it" not in notes
    assert "measure by label='cls'" in notes


def test_mixed_data_that_a_small_buffer_would_feel_is_told() -> None:
    shape = Shape(10**6, 10**9, 1000, 1000, 10**9, h_D=400.0, is_shuffled=True)
    means = Means(10**8, 4 * 10**6, 10, 1, NOTHING, 1e9, 0.001)
    advice = advise(shape, means)
    pile = next(method for method in advice.methods if method.name == "CorgiPile")
    assert pile.R > 4
    assert any(f"R is {pile.R:.0f}, above the 4" in note for note in advice.notes)
    assert not any("above the 4" in note for note in advise(replace(shape, h_D=1.5), means).notes)


def test_next_to_nothing_is_nothing() -> None:
    assert [format_number(value) for value in (4.86e-14, -1e-9, 0.00247, 0.0)] == ["0", "0", "0.00247", "0"]


DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["planning.md", "scale.md"])
def test_plans_in_the_docs_are_what_the_command_prints(page: str) -> None:
    """Where one is out of date, put in what it prints."""
    (shown,) = re.findall(r"^ *\$ corgi2 plan .*?^ *```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    command, *printed = textwrap.dedent(shown).splitlines()[:-1]
    result = CliRunner().invoke(cli, shlex.split(command)[2:], catch_exceptions=False)
    assert printed == result.stdout.splitlines()
