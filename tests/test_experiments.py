"""Every experiment in a tiny form: it runs from end to end, continues, and publishes what it found."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from experiments import (
    augment,
    content,
    data,
    document,
    examples,
    figure1,
    figure5,
    images,
    language,
    language_show,
    measuring,
    passes,
    recipes,
    restore,
    runs,
    show,
    significance,
    table1,
    tables,
    texts,
    theorem1,
    theorem2,
    training,
)
from experiments.quality import h_of_products, spread_of_classes
from experiments.training import Arm
from PIL import Image

from corgi2.order.simulate import ORDERS, Layout

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written into the repository."""
    (tmp_path / "data").mkdir()
    for module in (data, examples, training, tables, language):
        monkeypatch.setattr(module, "SHARDS", tmp_path / "data")
    monkeypatch.setattr(runs.once, "__defaults__", (tmp_path / "runs",))
    monkeypatch.setattr(runs.kept, "__defaults__", (tmp_path / "runs",))


def _read(folder: Path, name: str) -> Any:
    found = json.loads((folder / f"{name}.json").read_text())
    assert found["command"].startswith("python -m experiments.")
    return found


def test_figure_1_draws_every_order_and_measures_it(tmp_path: Path) -> None:
    figure1.main(["--seeds", "3", "--out", str(tmp_path)])
    found = _read(tmp_path, "figure1")["uniformity"]
    assert list(found) == list(ORDERS)
    assert found["sequential"] == pytest.approx(1000 * 9 / 81)
    assert found["random access"] == pytest.approx(1, abs=0.3)
    assert found["Corgi², even picks"] < found["CorgiPile"] < found["sliding window"] < found["sequential"]
    picture = (tmp_path / "figure1.svg").read_text()
    assert all(f">{name}<" in picture for name in ORDERS)
    assert "python -m experiments.figure1 --seeds 3" in picture


def test_theorem_1_is_measured_as_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorem1, "LAYOUTS", (Layout(36, 8, 6),))
    theorem1.main(["--seeds", "30", "--out", str(tmp_path)])
    found = _read(tmp_path, "theorem1")["points"]
    assert len(found) == len(theorem1.METHODS) * len(theorem1.OWN)
    for point in found:
        assert abs(point["measured"] - point["predicted"]) < 5 * point["error"], point


def test_theorem_2_has_gaps_in_the_ratio_of_leading_terms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorem2, "LAYOUTS", (Layout(36, 8, 6),))
    monkeypatch.setattr(theorem2, "SPREADS", (4.0,))
    theorem2.main(["--seeds", "20", "--buffers", "40", "--out", str(tmp_path)])
    found = {(point["how"], point["method"]): point for point in _read(tmp_path, "theorem2")["points"]}
    for how in (theorem2.DRAWN, theorem2.EPOCHS):
        pile, even = found[how, "CorgiPile"], found[how, "Corgi², even picks"]
        assert abs(pile["gap_ratio"] - pile["leading_ratio"]) < 4 * pile["error"], how
        assert even["gap_ratio"] < pile["gap_ratio"] / 2


def test_table_1_counts_what_the_formulas_say(tmp_path: Path) -> None:
    table1.main(["--out", str(tmp_path)])
    for row in _read(tmp_path, "table1")["rows"]:
        for part in ("offline", "online"):
            assert row[part]["counted"] == row[part]["formula"], row


def test_figure_5_has_h_rise_with_blocks(tmp_path: Path) -> None:
    found = figure5.compare(examples.made_up(4, 60, (1, 6, 6)), {0.1: ((5, 8), (10, 4), (20, 2))}, seeds=2)
    by_b = [point["H"] for point in found if point["method"] == "CorgiPile"]
    assert by_b == sorted(by_b)
    assert all(point["accuracy"] > 25 for point in found)
    figure = figure5.draw(found)
    figure.savefig(tmp_path / "figure5.png")


def test_gradients_of_a_last_layer_have_the_h_of_their_order() -> None:
    random = np.random.default_rng(0)
    left, right = random.normal(size=(400, 3)).astype(np.float32), random.normal(size=(400, 5)).astype(np.float32)
    outer = (left[:, :, None] * right[:, None, :]).reshape(400, -1).astype(np.float64)
    means = outer.reshape(20, 20, -1).mean(axis=1) - outer.mean(axis=0)
    expected = 20 * (means**2).sum(axis=1).mean() / outer.var(axis=0).sum()
    assert h_of_products(left, right, 20) == pytest.approx(expected, rel=1e-4)
    assert h_of_products(left, right * 0, 20) is None


def test_windows_say_how_even_their_classes_are() -> None:
    labels = np.repeat(np.arange(4), 10)
    assert spread_of_classes(labels, 4, 10) == {"spread": pytest.approx(np.sqrt(75 / 4)), "missing": 3}
    assert spread_of_classes(labels.reshape(4, 10).T.ravel(), 4, 20) == {"spread": 0, "missing": 0}


ARMS = [
    Arm("random access", 10, 4),
    Arm("sliding window", 10, 4),
    Arm("CorgiPile", 10, 4),
    Arm("Corgi², random picks", 10, 4),
    Arm("Corgi², even picks", 10, 4),
    Arm("Corgi², 2 passes, even picks", 10, 4),
    Arm("Corgi², ranges of 1/2 in rounds", 10, 4),
    Arm("Corgi², with replacement", 10, 4),
    Arm("random access", 10, 4, "group"),
]


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_a_network_is_trained_from_every_order(arm: Arm, tmp_path: Path) -> None:
    made = examples.made_up(4, 40, (3, 16, 16))
    found = training.train(made, "made-up", arm, seed=1, epochs=2, batch=10, rate=0.05)
    assert found["arm"] == arm.name
    assert len(found["epochs"]) == 2
    assert found["epochs"][1]["cpu_seconds"] > found["epochs"][0]["cpu_seconds"] > 0
    assert 0 <= found["accuracy"] <= 100
    known = {"random access": 320, "sliding window": 32, "CorgiPile": 32, "Corgi², ranges of 1/2 in rounds": 80}
    assert found["requests"] == known.get(arm.method, 96 if "2 passes" in arm.method else 64)
    if arm.method == "CorgiPile":
        assert found["H_labels"] > 3
    assert not [file for file in (tmp_path / "data").iterdir() if file.name != "made-up-10"], (
        "what was mixed is removed"
    )


def test_the_network_is_as_large_as_the_documents_say() -> None:
    size = sum(part.numel() for part in training.network((3, 32, 32), 10, "batch").parameters())
    assert f"{size:,}" == "22,282"
    assert "22,282 parameters for ten classes" in (DOCS / "results.md").read_text()


def test_the_loader_gives_the_pixels_that_belong_to_the_numbers() -> None:
    made = examples.made_up(4, 40, (3, 16, 16))
    order = training.Order(made, ARMS[4], seed=3, batch=7)
    order.prepare(training.stored(made, "made-up", 10))
    batches = list(order.epoch(0))
    numbers = np.concatenate([batch.number for batch in batches])
    assert np.array_equal(np.sort(numbers), np.arange(160))
    assert np.array_equal(np.concatenate([batch.x for batch in batches]), made.x[numbers])
    assert np.array_equal(np.concatenate([batch.y for batch in batches]), made.y[numbers])


def test_blocks_are_read_in_as_many_ranges_as_the_arm_says(tmp_path: Path) -> None:
    made, arm = examples.made_up(4, 40, (3, 16, 16)), Arm("Corgi², ranges of 1/2 in rounds", 10, 4)
    report = training.mix(made, arm, 1, training.stored(made, "made-up", 10), tmp_path / "out")
    assert (arm.passes, arm.ranges, report.reads) == (1, 2, 32)


def test_offline_passes_are_timed_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = examples.ImageSet("made-up", data.Origin("", "nowhere"), lambda _: examples.made_up(4, 40, (3, 16, 16)))
    monkeypatch.setattr(passes, "PROTOCOLS", {"made-up": images.Protocol(made, [], epochs=1, seeds=1, batch=10)})
    monkeypatch.setattr(passes, "SHAPES", {"made-up": (10, 4)})
    monkeypatch.setattr(passes, "METHODS", (images.EVEN, images.TWICE, "Corgi², ranges of 1/2 in rounds"))
    monkeypatch.setattr(passes, "SHARDS", tmp_path / "data")
    passes.main(["--data", str(tmp_path), "--repeats", "1", "--out", str(tmp_path)])
    rows = _read(tmp_path, "passes")["rows"]
    assert [(row["reads"], row["writes"]) for row in rows] == [(16, 16), (32, 32), (32, 16)]
    assert all(row["seconds"] > 0 and row["cpu_seconds"] > 0 for row in rows)


def test_a_run_that_was_cut_off_continues(tmp_path: Path) -> None:
    made: list[str] = []

    def make(name: str) -> runs.Run:
        made.append(name)
        if len(made) == 2:
            raise KeyboardInterrupt
        return {"name": name}

    names = ["a", "b", "c"]

    def make_all() -> None:
        for name in names:
            runs.once("x", name, partial(make, name))

    with pytest.raises(KeyboardInterrupt):
        make_all()
    make_all()
    assert made == ["a", "b", "b", "c"]
    assert [run["name"] for run in runs.kept("x")] == names
    assert sorted(file.name for file in (tmp_path / "runs/x").iterdir()) == ["a.json", "b.json", "c.json"]


def test_a_run_in_the_making_is_left_to_its_process_unless_that_is_dead(tmp_path: Path) -> None:
    folder = tmp_path / "runs/x"
    folder.mkdir(parents=True)
    (folder / "a.running").write_text(str(os.getppid()))
    assert runs.once("x", "a", dict) is None
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (folder / "a.running").write_text(done.stdout.decode().strip())
    found = runs.once("x", "a", lambda: {"done": 1})
    assert found is not None
    assert found["done"] == 1


def test_images_are_trained_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = examples.ImageSet("made-up", data.Origin("", "nowhere"), lambda _: examples.made_up(4, 40, (3, 16, 16)))
    protocol = images.Protocol(made, [ARMS[0], ARMS[2], ARMS[4]], epochs=2, seeds=2, batch=10)
    monkeypatch.setattr(images, "PROTOCOLS", {"made-up": protocol})
    monkeypatch.setattr(tables, "PROBLEMS", {})
    images.run("made-up", tmp_path, 2)
    images.run("made-up", tmp_path, 2, ["random access"])  # there is nothing left to do
    with pytest.raises(SystemExit, match="there is no arm 'x'; there are: random access; CorgiPile"):
        images.run("made-up", tmp_path, 2, ["x"])
    show.main(["--out", str(tmp_path / "out")])
    found = _read(tmp_path / "out", "made-up")
    assert len(found["runs"]) == 6
    rows = {row["arm"]: row for row in found["rows"]}
    assert "apart" not in rows["random access"]
    assert rows["CorgiPile (10, 4)"]["verdict"] in ("equal", "worse", "better", "undecided")
    assert show.image_table(found["rows"]).count("\n") == 4
    show.main(["--from", str(tmp_path / "out"), "--out", str(tmp_path / "again")])
    for name in ("made-up.json", "made-up.svg", "accuracy-against-h.svg"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    shutil.rmtree(tmp_path / "runs")
    assert restore.restore("made-up", protocol.key, tmp_path / "out") == 6
    assert restore.restore("made-up", protocol.key, tmp_path / "out") == 0, "they are there"
    assert [show._lean(run) for run in runs.kept(protocol.key)] == found["runs"]


def test_tables_are_trained_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(_: Path, folder: Path) -> None:
        random = np.random.default_rng(0)
        label = np.repeat([0, 1], 300)
        table = pa.table({"x": label + random.normal(size=600), "z": random.normal(size=600), "label": label})
        data._cut(table, 60, folder)

    made = data.DataSet("made-up", data.Origin(".", "nowhere"), "", "label", make)
    monkeypatch.setattr(tables, "SETS", (made,))
    monkeypatch.setattr(
        tables,
        "PROBLEMS",
        {
            "made-up": (
                lambda table: (tables._scaled(tables._numbers(table)), table["label"].to_numpy()),
                20,
                (0.1, 0.3),
            )
        },
    )
    monkeypatch.setattr(images, "PROTOCOLS", {})
    problem, shards = tables.load("made-up", tmp_path)
    assert (problem.blocks, problem.n, problem.window) == (10, 4, 240)
    best = problem.best()
    for method in tables.METHODS:
        for seed in range(2):
            name = f"{method}, seed {seed}"
            found = runs.once(tables.key("made-up"), name, partial(tables.run, problem, shards, method, seed, best))
            assert found is not None
            assert np.array(found["gaps"]).shape == (5, 2)
            assert np.min(found["gaps"]) > -1e-6, "nothing is better than the best"
            make_h = partial(tables.measure, problem, shards, method, seed, best)
            assert runs.once(tables.key("made-up"), f"H of {name}", make_h) is not None
    show.main(["--out", str(tmp_path / "out")])
    rows = {row["method"]: row for row in _read(tmp_path / "out", "made-up")["rows"]}
    assert rows["random access"]["gaps"]["5"] < rows["sliding window"]["gaps"]["5"]
    for kind in ("H_labels", "H_gradients"):
        assert rows["Corgi², even picks"][kind] < 2 < rows["sliding window"][kind]


def test_tables_in_the_documents_are_those_of_the_results() -> None:
    text = (DOCS / "results.md").read_text()
    assert document.filled(text, DOCS / "results") == text
    for picture in re.findall(r"\]\((results/[^)]*)\)", text):
        assert (DOCS / picture).exists()


def test_a_table_without_a_place_in_the_documents_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no place for"):
        document.filled("", DOCS / "results")


def test_equal_means_are_found_equal_and_others_not() -> None:
    random = np.random.default_rng(0)
    noise = random.normal(0, 0.2, 8)
    full, same, worse = (70 + noise).tolist(), (70 - noise + 2 * noise.mean()).tolist(), (68 + noise).tolist()
    assert significance.equivalence(same, full) < 0.05 < significance.difference(same, full)
    assert significance.difference(worse, full) < 0.001 < 0.9 < significance.equivalence(worse, full)
    assert significance.verdict(0.01, 0.01, -0.1) == "equal"
    assert significance.verdict(0.5, 0.01, -1) == "worse"
    assert significance.verdict(0.5, 0.5, -1) == "undecided"


def test_equivalence_errs_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    pairs = random.normal(0, 0.4, (2000, 2, 8))
    found = [significance.equivalence((left + 0.5).tolist(), right.tolist()) < 0.05 for left, right in pairs]
    assert np.mean(found) == pytest.approx(0.05, abs=0.02)


def test_holm_corrects_for_many() -> None:
    assert significance.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert significance.holm([]) == []


def test_missing_data_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="get it from https://www.cs.toronto.edu"):
        examples.CIFAR10.load(tmp_path)
    with pytest.raises(SystemExit, match="give --data FOLDER"):
        data.SETS[0].shards(tmp_path)


def _pictures(folder: Path, count: int, side: int, classes: int) -> str:
    folder.mkdir()
    random = np.random.default_rng(0)
    for shard in range(2):
        with tarfile.open(folder / f"train-{shard}.tar", "w") as out:
            for number in range(count):
                picture = io.BytesIO()
                Image.fromarray(random.integers(0, 255, (side, side + 8, 3), np.uint8)).save(picture, "jpeg")
                for part, body in (("jpg", picture.getvalue()), ("cls", b"%d" % (number % classes))):
                    member = tarfile.TarInfo(f"{shard}-{number}.{part}")
                    member.size = len(body)
                    out.addfile(member, io.BytesIO(body))
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "side"), [("cifar100", 32), ("imagenet", 240)])
def test_the_recipes_of_the_paper_train_and_go_on(name: str, side: int, tmp_path: Path) -> None:
    shards, kept = _pictures(tmp_path / "train", 8, side, 5), tmp_path / "kept"
    command = [sys.executable, "-m", "experiments.recipes", name, shards, "--test", shards, "--buffer", "100MB"]
    command += ["--workers", "2" if name == "cifar100" else "0", "--keep", str(kept), "--batch", "8", "--epochs"]

    def run(epochs: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, str(epochs)], capture_output=True, text=True, check=False, cwd=DOCS.parent)

    first = run(2)
    assert first.returncode == 0, first.stderr
    told = json.loads((kept / "told.json").read_text())
    assert [0 <= epoch["accuracy"] <= 100 for epoch in told] == [True, True]
    assert all(np.isfinite(epoch["loss"]) for epoch in told)
    state = torch.load(kept / "state.pt", weights_only=True)
    assert state["schedule"]["last_epoch"] == 4, "two steps an epoch, whatever the workers"
    assert state["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0, abs=1e-9), "the cosine has ended"
    assert run(2).stdout == "", "all is done"
    assert "begun for 2 epochs, not 3; name another --keep" in run(3).stderr


def test_recipes_are_those_of_the_paper() -> None:
    cifar, imagenet = recipes.RECIPES["cifar100"], recipes.RECIPES["imagenet"]
    assert (cifar.epochs, cifar.batch, cifar.rate, cifar.momentum, cifar.decay) == (200, 256, 0.1, 0.9, 5e-4)
    assert (imagenet.epochs, imagenet.batch, imagenet.rate, imagenet.decay) == (100, 2048, 0.1, 1e-4)
    assert sum(part.numel() for part in imagenet.model(1000).parameters()) == 25_557_032  # as published


@pytest.mark.parametrize("name", augment.OPERATIONS)
def test_operations_keep_the_size_of_images(name: str) -> None:
    torch.manual_seed(0)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8))
    for level in range(10):
        assert augment.OPERATIONS[name](image, level).size == (50, 40)


def test_images_of_any_shape_become_those_of_a_recipe() -> None:
    torch.manual_seed(0)
    for size in ((32, 32), (300, 200), (100, 640)):
        image = Image.fromarray(np.zeros((*size, 3), np.uint8))
        assert augment.for_imagenet(image).size == (224, 224)
        assert augment.for_test(224)(image).size == (224, 224)
    assert augment.for_cifar(Image.new("RGB", (32, 32))).size == (32, 32)
    assert {name for policy in augment.POLICIES for name, _, _ in policy} == set(augment.OPERATIONS)


@pytest.mark.parametrize(
    "command",
    [content, figure1, figure5, images, measuring, passes, recipes, restore, show, table1, tables, theorem1, theorem2],
)
def test_every_command_explains_itself(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    assert f"python -m {command.__name__}" in capsys.readouterr().out


def test_parquet_rows_keep_their_numbers(tmp_path: Path) -> None:
    data._cut(pa.table({"a": np.arange(25)}), 10, tmp_path)
    rows = [pq.read_table(file)["row"].to_pylist() for file in sorted(tmp_path.glob("*.parquet"))]
    assert rows == [list(range(10)), list(range(10, 20)), list(range(20, 25))]


def _source(number: int) -> texts.Source:
    """Text of one letter among twenty."""
    return texts.Source(f"s{number}", "letters", None, lambda _: iter([bytes([97 + number, 10] * 4000)]))


def test_a_language_model_sees_every_sequence_once_in_every_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = language.Protocol(
        sources=[_source(number) for number in range(4)],
        shards=4,
        b=8,
        length=16,
        held=8,
        batch=8,
        width=8,
        layers=1,
        rates=(1e-3, 1e-2),
        seeds=2,
    )
    monkeypatch.setattr(language_show, "Protocol", lambda: tiny)
    language.run(tiny, tmp_path)
    assert all(run["seen"] == tiny.total for run in runs.kept(tiny.key))
    language.run(tiny, tmp_path)  # nothing is left to do
    assert len(runs.kept(tiny.key)) == len(language.ARMS) * (2 + 2)
    language_show.main(["--out", str(tmp_path)])
    found = _read(tmp_path, "language")
    assert [row["arm"] for row in found["rows"]] == [arm.name for arm in language.ARMS]
    assert {row["seeds"] for row in found["rows"]} == {2}
    assert len(found["sources"]) == 4
    language_show.main(["--from", str(tmp_path), "--out", str(tmp_path / "again")])
    assert _read(tmp_path / "again", "language") == found


def test_texts_are_cut_to_a_size_and_described(tmp_path: Path) -> None:
    text = _source(1).text(100, tmp_path)
    assert text == b"b\n" * 50
    described = _source(1).described(text)
    assert (described["bytes"], described["sha256"]) == (100, hashlib.sha256(text).hexdigest())
    with pytest.raises(SystemExit, match="8,000 bytes, and 9,000 are needed"):
        _source(1).text(9000, tmp_path)
    for source in texts.SOURCES:
        if source.name not in ("reviews", "flights", "sensors"):
            assert len(source.text(50_000)) == 50_000


def test_both_outcomes_of_the_tests_are_said() -> None:
    assert language_show.verdict(0.01, 0.01, 1) == "equal and worse"
    assert language_show.verdict(0.5, 0.01, -1) == "better"
    assert language_show.verdict(0.5, 0.5, 1) == significance.UNDECIDED
