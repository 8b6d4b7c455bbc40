"""What a plan says: requests that are really made, the method that helps, and clear answers to bad questions."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.table1 import counted

import corgi2
from corgi2 import theory
from corgi2.advice import plan
from corgi2.advice.prices import NOTHING, known, load_prices
from corgi2.advice.recommendation import Advice, advise
from corgi2.advice.situation import Means, Offline, Shape
from corgi2.dataset.index_file import open_index
from corgi2.dataset.scan import index_source
from corgi2.dataset.source import find_source
from corgi2.errors import SourceError
from corgi2.offline import Settings, plan_shuffle, run_shuffle
from corgi2.quality.prediction import By, Prediction, predict
from corgi2.theory import Blocks
from tests.shards import parquet_of
from tests.sources import write_tars

TB27 = Shape(1_300_000_000, 27 * 10**12, 27_000, 27_000, 27 * 10**12, 4e4)

CLUSTER = Means(64 * 10**9, 4 * 10**9, 90, 8, load_prices("aws"), 500e6, 0.03)


def _named(advice: Advice, name: str) -> Any:
    return next(method for method in advice.methods if method.name == name)


def test_predicted_requests_are_those_that_the_store_counts(tmp_path: Path) -> None:
    source, epochs = write_tars(tmp_path / "in", 24, 20), 3
    subprocess.run([sys.executable, "-m", "corgi2", "index", str(source)], check=True, capture_output=True)
    advice = plan(
        source, buffer=200_000, online_buffer=200_000, epochs=epochs, label=("cls",), bandwidth=10**9, latency=1
    )

    def train(folder: Path) -> int:
        loader = corgi2.Loader(folder, buffer=200_000, batch_size=7)
        with counted() as count:
            assert sum(len(batch["cls"]) for _ in range(epochs) for batch in loader) == epochs * 480
        return count.requests

    assert train(source) == _named(advice, "CorgiPile").online_requests == _named(advice, "sequential").online_requests
    with counted() as count:
        report = corgi2.shuffle(source, tmp_path / "out", buffer=200_000)
    mixed = _named(advice, "Corgi², 1 pass, even picks")
    assert (count.requests, report.groups > 1) == (mixed.offline_requests, True)
    assert train(tmp_path / "out") == mixed.online_requests

    found = find_source(source)
    group = found.format.scan(found.shard(0), 10**9)
    assert group.blocks[0].records == 20
    with counted() as count:  # one at a time, as the table has it: an example is what lies between two offsets
        for number in range(24):
            shard, each = found.shard(number), (found.entries[number].size - 1024) // 20
            for record in range(20):
                shard.readinto(record * each, memoryview(bytearray(each)))
    access = count.requests
    assert access * epochs == _named(advice, "random access").online_requests
    once = _named(advice, "shuffle once")
    with counted() as count:
        store = find_source(tmp_path / "out").store
        for number in range(24):
            store.publish(f"again-{number}.tar", [b"x"])
    assert access + count.requests == once.offline_requests
    assert once.online_requests == _named(advice, "CorgiPile").online_requests


def test_two_passes_take_as_many_requests_as_planned(tmp_path: Path) -> None:
    source = write_tars(tmp_path / "in", 24, 20)
    planned = _named(plan(source, buffer=200_000), "Corgi², 2 passes, even picks")
    job = plan_shuffle(source, tmp_path / "out", Settings(buffer_bytes=200_000, passes=2))
    with counted() as count:
        run_shuffle(job)
        assert planned.offline_requests == count.requests


@pytest.mark.parametrize("blocks", [27_000, 100, 7])
def test_costs_and_hours_follow_from_requests_and_bytes(blocks: int) -> None:
    shape = Shape(10**7, 10**11, blocks, blocks, 10**11, 100)
    means = replace(CLUSTER, nodes=1, buffer=10**11, online_buffer=10**11)
    advice = advise(shape, means)
    pile, mixed = _named(advice, "CorgiPile"), _named(advice, "Corgi², 1 pass, random picks")
    assert pile.cost_usd == pytest.approx(pile.online_requests * 0.4e-6)
    assert pile.extra_bytes == pile.offline_requests == 0
    assert mixed.extra_bytes == 10**11
    assert mixed.cost_usd > 100 * 0.023
    assert mixed.online_hours >= 90 * 10**11 / 500e6 / 3600
    assert _named(advise(shape, replace(means, nodes=4)), "CorgiPile").online_hours == pytest.approx(
        pile.online_hours / 4
    )


def test_quality_is_that_of_the_theory() -> None:
    shape = Shape(64_000, 64_000_000, 1000, 1000, 64_000_000, 64)
    means = replace(CLUSTER, buffer=64_000 * 40, online_buffer=2 * 64_000 * 40, nodes=1)
    advice = advise(shape, means)
    data = Blocks(1000, 64, 64)
    pile = _named(advice, "CorgiPile")
    assert pytest.approx(theory.window_random(data, 40)) == pile.H
    assert pytest.approx(theory.long_run(pile.H, 40 * 64, 64_000, advice.tau)) == pile.R
    assert advice.tau == 40 * 64
    mixed = _named(advice, "Corgi², 1 pass, random picks")
    assert mixed.h == pytest.approx(theory.h_after_pass(data, 40))
    assert pytest.approx(theory.window_random(Blocks(1000, 64, mixed.h), 40)) == mixed.H
    even = _named(advice, "Corgi², 1 pass, even picks")
    assert (even.window, even.H) == (25, pytest.approx(theory.window_even(data, 40, 25)))
    assert even.relative == pytest.approx(even.H / theory.window_full(data, 25))
    assert _named(advice, "random access").relative == 1


def test_what_is_recommended_is_what_helps() -> None:
    def name(shape: Shape, means: Means = CLUSTER) -> tuple[str, str]:
        advice = advise(shape, means)
        return advice.recommended.name, advice.why

    chosen, why = name(replace(TB27, h_D=1.1))
    assert (chosen, "already mixed" in why) == ("CorgiPile", True)
    chosen, why = name(replace(TB27, is_shuffled=True, h_D=3.0))
    assert (chosen, "corgi2 has already mixed" in why) == ("CorgiPile", True)
    chosen, why = name(replace(TB27, is_shuffled=True, h_D=None))
    assert (chosen, "corgi2 has already mixed" in why) == ("CorgiPile", True)
    assert name(replace(TB27, is_shuffled=True))[0].startswith("Corgi²")  # it was, but badly
    assert "mixed by corgi2" not in name(replace(TB27, is_shuffled=True, h_D=3.0, contradiction="h_D is 9"))[1]
    assert "already mixed" not in name(replace(TB27, h_D=1.1, h_D_high=900.0))[1]
    local, quick = replace(TB27, is_local=True), replace(CLUSTER, prices=NOTHING, latency=1e-5)
    assert "RandomSampler" in " ".join(advise(local, quick).notes), "which corgi2 does not run"
    assert advise(local, quick).recommended.command
    assert "RandomSampler" not in " ".join(advise(replace(local, reads_records=False), quick).notes)
    chosen, why = name(Shape(10**6, 10**9, 100, 100, 10**9, 10**4))
    assert (chosen, "holds all of the data" in why) == ("CorgiPile", True)
    chosen, why = name(TB27)
    assert chosen.startswith("Corgi²")
    assert advise(TB27, CLUSTER).recommended.command is not None


def test_smaller_blocks_are_recommended_where_they_reach_a_full_shuffle() -> None:
    shape = Shape(10**8, 10**12, 20_000, 20_000, 10**12, 5_000, reads_records=False)
    means = replace(CLUSTER, buffer=16 * 10**9, online_buffer=2 * 10**9, nodes=1)
    advice = advise(shape, means)
    assert "cut smaller blocks" in advice.why
    assert "--block-size" in (advice.recommended.command or "")
    usual = _named(advice, "Corgi², 1 pass, even picks")
    assert advice.recommended.felt <= 2 < usual.felt
    assert (advice.recommended.objects, advice.recommended.offline_writes) == (usual.objects, usual.offline_writes)
    whole = advise(replace(shape, has_ranges=False), means)
    assert "--shard-size" in (whole.recommended.command or "")
    assert whole.recommended.objects > usual.objects, "shards that are read whole have to be small ones"


def test_unknown_mixing_is_taken_for_the_worst_and_said() -> None:
    advice = advise(replace(TB27, h_D=None), CLUSTER)
    assert _named(advice, "sequential").h == TB27.block_records
    assert any("h_D is not known" in note for note in advice.notes)
    assert "not known" in advice.as_text()


def test_a_source_without_an_index_is_not_scanned(tmp_path: Path) -> None:
    source = write_tars(tmp_path / "in", 40, 30)
    with counted() as count:
        advice = plan(source, buffer=10**6, online_buffer=10**6, latency=1, bandwidth=10**9)
        assert count.requests <= 20
    assert advice.shape.records == pytest.approx(1200, rel=0.1)
    with counted() as count:
        advice = plan(source, buffer=10**6, online_buffer=10**6, latency=1, bandwidth=10**9, label=("cls",), sample=8)
        assert count.requests <= 20 + 8
    assert advice.shape.h_D == pytest.approx(30, rel=0.1)


def test_a_store_at_hand_is_measured(tmp_path: Path) -> None:
    advice = plan(write_tars(tmp_path / "in", 5, 5), buffer=10**7)
    assert advice.means.bandwidth > 1e6
    assert 0 < advice.means.latency < 1
    assert advice.means.prices == NOTHING
    assert all(method.cost_usd == 0 for method in advice.methods)


def test_parquet_is_planned_from_its_footers(tmp_path: Path) -> None:
    import pyarrow as pa

    (tmp_path / "in").mkdir()
    for shard in range(6):
        table = pa.table({"x": np.arange(1000) + shard, "label": [shard] * 1000})
        (tmp_path / "in" / f"part-{shard}.parquet").write_bytes(parquet_of(table))
    advice = plan(tmp_path / "in", buffer=10**8, label=("label",))
    assert (advice.shape.records, advice.shape.blocks) == (6000, 6)
    assert advice.shape.h_D == pytest.approx(1000)
    assert not advice.shape.reads_records


def _corgi2(*words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([sys.executable, "-m", "corgi2", *words], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_a_plan_needs_no_data(tmp_path: Path) -> None:
    numbers = ["--records", "1.3e9", "--bytes", "27TB", "--shards", "27000", "--h-d", "4e4"]
    means = ["--buffer", "64GB", "--online-buffer", "4GB", "--nodes", "8", "--epochs", "90"]
    result = json.loads(_corgi2("plan", *numbers, *means, "--json").stdout)
    assert result["recommended"] in [method["name"] for method in result["methods"]]
    for method in result["methods"]:
        keys = ("name", "offline_requests", "online_requests", "h", "H", "H_full", "cost_usd", "extra_bytes")
        assert all(method[key] is not None for key in keys)
    text = _corgi2("plan", *numbers, *means, "--html", str(tmp_path / "plan.html")).stdout
    assert "recommended: " in text
    assert "corgi2 shuffle SRC DST --buffer 64GB" in text
    assert (tmp_path / "plan.html").read_text().count('<svg viewBox="0 0') == 2


MEMORY = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "corgi2", "plan", "--records", "1e10", "--bytes", "640TB", "--shards", "1e7",
    "--buffer", "64GB", "--html", sys.argv[1]], check=True, capture_output=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def test_a_plan_for_ten_million_blocks_takes_little_memory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY, str(tmp_path / "p.html")], capture_output=True, text=True)
    assert int(done.stdout) < 10**9, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["plan"], 2, "without a data set, give --records, --bytes, --shards"),
        (["plan", "--records", "1e9"], 2, "give --bytes, --shards, too"),
        (["plan", "--records", "1e6", "--bytes", "1GB", "--shards", "10", "--nodes", "1.5"], 2, "is no whole number"),
        (["plan", "--records", "many"], 2, "is no whole number"),
        (["plan", "--records", "inf"], 2, "is no whole number"),
        (["plan", "--records", "1e400"], 2, "is no whole number"),
        (["plan", "--records", "5", "--bytes", "1TB", "--shards", "10"], 2, "every block must hold a record"),
        (
            ["plan", "--records", "1e6", "--bytes", "1TB", "--shards", "10", "--h-d", "1e6"],
            2,
            "h_D must lie between 0 and b",
        ),
        (
            ["plan", "--records", "1e6", "--bytes", "1TB", "--shards", "10", "--h-d", "nan"],
            2,
            "h_D must lie between 0 and b",
        ),
        (
            ["plan", "--records", "1e6", "--bytes", "1TB", "--shards", "10", "--buffer", "1GB"],
            2,
            "--buffer 100000MB would",
        ),
        (["plan", "--records", "1e6", "--bytes", "1GB", "--shards", "10", "--buffer", "0"], 2, "buffer is above 0"),
        (["plan", "--records", "1e6", "--bytes", "1GB", "--shards", "10", "--prices", "none.json"], 2, "no prices"),
        (["plan", "--records", "1e6", "--bytes", "1GB", "--shards", "10", "--label", "cls"], 2, "measure a data set"),
        (
            ["plan", "--records", "1e6", "--bytes", "1GB", "--shards", "10", "--latency", "-1"],
            2,
            "latency must be a number of milliseconds",
        ),
        (["plan", "/nowhere"], 3, "/nowhere"),
        (["plan", "/nowhere", "--records", "5"], 2, "leave out one or the other"),
        (["plan", "/nowhere", "--h-d", "5", "--label", "x"], 2, "give one of them"),
        (["inspect", "/nowhere", "--html", "x.html"], 2, "show classes: give --label"),
    ],
)
def test_bad_questions_get_one_clear_line(words: list[str], code: int, said: str) -> None:
    done = _corgi2(*words, code=code)
    assert said in done.stderr
    assert done.stdout == ""


def test_extreme_numbers_give_a_plan() -> None:
    for words in (
        ["--records", "1", "--bytes", "1", "--shards", "1"],
        ["--records", "9e17", "--bytes", "900000TB", "--shards", "1e9", "--buffer", "1TB"],
        ["--records", "1e6", "--bytes", "1GB", "--shards", "10", "--buffer", "1TB", "--online-buffer", "1TB"],
        ["--records", "1e6", "--bytes", "1GB", "--shards", "10", "--online-buffer", "1KB"],
        ["--records", "1e6", "--bytes", "1GB", "--shards", "1e6", "--h-d", "0"],
    ):
        result = json.loads(_corgi2("plan", *words, "--json").stdout)
        assert result["recommended"]
        assert all(np.isfinite(method["H"]) for method in result["methods"])


def test_prices_are_a_file_with_dates(tmp_path: Path) -> None:
    assert set(known()) == {"aws", "gcs", "azure"}
    for name, held in known().items():
        assert load_prices(name).date == held["date"]
        assert held["source"].startswith("https://")
    own = tmp_path / "own.json"
    own.write_text('{"read_per_million": 1, "write_per_million": 2, "gb_month": 3}')
    assert load_prices(str(own)).requests(1e6, 1e6) == 3
    for text, said in (
        ("{}", "read_per_million must be"),
        ("[1", "is not JSON"),
        ('"x"', "must be a number of dollars"),
    ):
        own.write_text(text)
        with pytest.raises(SourceError, match=said):
            load_prices(str(own))


def test_shuffled_data_shows_what_was_predicted(tmp_path: Path) -> None:
    source = write_tars(tmp_path / "in", 40, 25)
    corgi2.shuffle(source, tmp_path / "out", buffer=10**9, buffer_blocks=10)
    result = json.loads(_corgi2("inspect", str(tmp_path / "out"), "--label", "cls", "--json").stdout)
    data = Blocks(40, 25, 25)
    assert result["h_predicted"] == pytest.approx(theory.h_after_pass(data, 10))
    assert result["h_D"] == pytest.approx(result["h_predicted"], rel=0.5)
    assert "h_predicted" in json.loads(_corgi2("inspect", str(source), "--label", "cls", "--json").stdout)
    text = _corgi2("inspect", str(tmp_path / "out"), "--label", "cls").stdout
    assert "after a pass with n = 10, from h_D = 25 before" in text


def test_what_was_mixed_in_place_has_no_prediction_and_says_so(tmp_path: Path) -> None:
    source = write_tars(tmp_path / "in", 12, 5)
    corgi2.shuffle(source, in_place=True, buffer=10**9, buffer_blocks=4)
    found = find_source(source)
    said = predict(found, index_source(found), By(("cls",)), None)
    assert said == "it was mixed in place, and the shards it was mixed from are gone"


@pytest.mark.parametrize("mixed", [False, True])
def test_the_evenness_of_a_buffer_is_what_the_loader_gives(mixed: bool, tmp_path: Path) -> None:
    source = write_tars(tmp_path / "in", 60, 20, classes=60)
    spreads = []
    for seed in range(12):
        folder = source
        if mixed:
            folder = tmp_path / f"out-{seed}"
            corgi2.shuffle(source, folder, buffer=10**9, buffer_blocks=10, seed=seed)
        if seed == 0:
            words = ("inspect", str(folder), "--label", "cls", "--online-buffer", "1600KB", "--json")
            said = json.loads(_corgi2(*words).stdout)["online"]
        loader = corgi2.Loader(folder, buffer="1600KB", seed=seed)
        assert said["blocks"] == loader.world(1).window
        labels = [int(sample["cls"]) for sample in loader]
        size = said["blocks"] * 20
        for start in range(0, len(labels) - size + 1, size):
            counts = np.bincount(labels[start : start + size], minlength=60)
            spreads.append(((counts - size / 60) ** 2).mean())
    assert said["mean"] == pytest.approx(said["records"] / 60)
    assert np.sqrt(np.mean(spreads)) == pytest.approx(said["spread"], rel=0.15)
    assert (said["spread"] > 3 * said["spread_full"]) != mixed


def test_a_page_never_replaces_a_shard(tmp_path: Path) -> None:
    source = write_tars(tmp_path / "in", 3, 5)
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    for page in (source / "train-0000.tar", source):
        done = _corgi2("inspect", str(source), "--label", "cls", "--html", str(page), code=2)
        assert "--html names a file for the page" in done.stderr
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    done = _corgi2("inspect", str(source), "--label", "cls", "--html", str(tmp_path / "no" / "page.html"), code=2)
    assert "there is no folder" in done.stderr
    assert not done.stdout, "it is said before anything is read"


@pytest.mark.parametrize("typed", ["in/*.tar", "in/train-{0000..0011}.tar", "in", "in/"])
def test_the_recommended_command_runs(typed: str, tmp_path: Path) -> None:
    write_tars(tmp_path / "in", 12, 20)
    asked = ["--label", "cls", "--buffer", "200KB", "--online-buffer", "150KB", "--latency", "30"]
    result = json.loads(_corgi2("plan", f"{tmp_path}/{typed}", *asked, "--json").stdout)
    words = shlex.split(result["command"])
    target = words[3]
    assert words[3].startswith(f"{tmp_path}/in-")
    assert f'CorgiLoader("{words[3]}"' in _corgi2("plan", f"{tmp_path}/{typed}", *asked).stdout
    _corgi2(*words[1:3], target, *words[4:])
    assert corgi2.verify(tmp_path / "in", target).same


@pytest.mark.parametrize("buffer", ["100KB", "200KB"])
def test_two_passes_are_predicted_as_they_are_made(buffer: str, tmp_path: Path) -> None:
    """What lies between the passes has blocks of its own size. The smaller buffer mixes nothing, as is predicted."""
    source = write_tars(tmp_path / "in", 40, 30)
    found = []
    for seed in range(8):
        corgi2.shuffle(source, tmp_path / f"out-{seed}", buffer=buffer, passes=2, seed=seed, force=True)
        target = find_source(tmp_path / f"out-{seed}")
        index = open_index(target)
        assert index is not None
        by = By(("cls",), sample=1000)
        predicted = predict(target, index, by, None)
        assert isinstance(predicted, Prediction)
        found.append(by.measure(target, index).h_D)
        expected = predicted.h
    assert np.mean(found) == pytest.approx(expected, rel=0.25)


def test_planned_passes_replace_guessed_ones() -> None:
    planned = Offline(groups=9, n=3_000, shards=9_000, blocks=900_000, reads=800, writes=9_000)
    advice = advise(TB27, CLUSTER, planned, replace(planned, between=9_000))
    assert _named(advice, "Corgi², 1 pass, even picks").online_requests == 900_000 * 90


@pytest.mark.parametrize(("size", "puts"), [(32e6, 1), (33e6, 5 + 2), (80e6, 10 + 2)])
def test_a_plan_counts_the_parts_that_a_small_buffer_writes(size: float, puts: int) -> None:
    means = Means(200_000_000, 200_000_000, 1, 1, NOTHING, 1e9, 0.0)
    assert (means.writes(size, is_local=False), means.writes(size, is_local=True)) == (puts, 1)
