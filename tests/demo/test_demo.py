"""The demo tells the truth: what it prints and draws comes from the real command, the real loader, real training."""

import re
import sys
from pathlib import Path

import click
import numpy as np
import pytest

from corgi2 import demo
from corgi2.demo import model
from corgi2.demo.digits import LAYOUT, decode, load_digits, write_shards
from corgi2.demo.model import Network
from corgi2.errors import Corgi2Error
from corgi2.online.loader import Loader


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr(click, "echo", lines.append)
        demo.run(str(folder), seeds=3)
    return folder, "\n".join(lines)


def test_shards_hold_the_digits_as_they_are(tmp_path: Path) -> None:
    digits = load_digits()
    write_shards(digits, tmp_path / "in")
    batches = [decode(batch) for batch in Loader(tmp_path / "in", batch_size=100, shuffle=False)]
    assert np.array_equal(np.concatenate([x for x, _ in batches]), digits.x)
    assert np.array_equal(np.concatenate([y for _, y in batches]), digits.y)
    assert len(list((tmp_path / "in").glob("*.tar"))) == LAYOUT.blocks


def test_a_step_goes_down_the_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against differences of the loss in every direction of one of the weights' matrices."""
    digits, rate = load_digits(), 1e-3
    x, y = digits.x[::100], digits.y[::100]
    monkeypatch.setattr(model, "RATE", rate)
    monkeypatch.setattr(model, "MOMENTUM", 0.0)
    network = Network(0)

    def loss() -> float:
        _, scores = network._forward(x)
        return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]))

    for weights in network._parts:
        slopes, flat = np.empty(weights.size), weights.reshape(-1)
        for place in range(weights.size):
            before = flat[place]
            flat[place] = before + 1e-5
            above = loss()
            flat[place] = before - 1e-5
            slopes[place] = (above - loss()) / 2e-5
            flat[place] = before
        kept = [part.copy() for part in network._parts]
        network.train([(x, y)])
        step = (weights.reshape(-1) - next(old for old in kept if old.shape == weights.shape).reshape(-1)) / -rate
        np.testing.assert_allclose(step, slopes, atol=1e-6)
        for part, old in zip(network._parts, kept, strict=True):
            part[...] = old


def test_the_network_learns() -> None:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.y))
    network = Network(0)
    for _ in range(5):
        network.train((digits.x[part], digits.y[part]) for part in np.array_split(order, 48))
    assert network.accuracy(digits) > 90


def test_the_demo_measures_plans_shuffles_verifies_and_trains(told: tuple[Path, str]) -> None:
    folder, text = told
    for step in (
        "Measured: h_D = 22.7",
        "Planned:  Corgi², 1 pass, even picks",
        "Shuffled: 8 random groups",
        "Trained:",
    ):
        assert step in text
    assert "Verified: the same 1,536 records" in text
    assert (folder / "report.html").as_uri() in text


def _cell(text: str, name: str, column: int) -> float:
    (line,) = re.findall(rf"^  {name}  +(.*)$", text, re.MULTILINE)
    return float(re.split(r" {2,}", line)[column].rstrip(" %").replace(",", ""))


def test_orders_rank_as_the_theory_says(told: tuple[Path, str]) -> None:
    _, text = told
    by_h = ["shards as they are", "sliding window", "CorgiPile", "Corgi²", "full shuffle"]
    accuracy = [_cell(text, name, 0) for name in by_h]
    assert accuracy[0] < 30 < accuracy[2] < min(accuracy[3:]) - 3
    assert abs(accuracy[3] - accuracy[4]) < 4
    for name in by_h[2:]:
        measured, predicted = _cell(text, name, 2), _cell(text, name, 3)
        assert measured == pytest.approx(predicted, rel=0.25)
    assert [_cell(text, name, -2) for name in by_h] == [640, 640, 640, 768, 15360]


def test_the_report_stands_alone(told: tuple[Path, str]) -> None:
    page = (told[0] / "report.html").read_text()
    assert page.count('<svg viewBox="0 0') == 4
    assert page.count("<table>") == 4
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page


def test_the_demo_runs_again_in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corgi2.demo.tour.race", _stop)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            demo.run(str(tmp_path / "demo"), seeds=1)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(Corgi2Error, match=r"pip install 'corgi2\[demo\]'"):
        load_digits()
