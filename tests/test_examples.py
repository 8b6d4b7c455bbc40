"""The examples run as they are written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_gradients_of_a_real_model_measure_mixing() -> None:
    script = [sys.executable, str(EXAMPLES / "gradients.py")]
    done = subprocess.run(script, check=True, capture_output=True, text=True, timeout=250)
    found = dict(re.findall(r"^(raw|mixed): h_D = (\S+) of at most b = 50", done.stdout, re.MULTILINE))
    assert float(found["raw"]) > 5 * float(found["mixed"])


def _ray_train(folder: Path) -> "subprocess.CompletedProcess[str]":
    only_here = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    script = [sys.executable, str(EXAMPLES / "ray_train.py"), str(folder)]
    return subprocess.run(script, capture_output=True, text=True, timeout=140, env=os.environ | only_here)


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_workers_of_ray_train_share_every_epoch(tmp_path: Path) -> None:
    pytest.importorskip("ray.train")
    try:
        done = _ray_train(tmp_path / "run")
    except subprocess.TimeoutExpired as error:
        if b"GCS" not in (error.stderr or b""):
            raise
        done = _ray_train(tmp_path / "again")  # Ray itself did not start: on a busy machine its ports may be taken
    for epoch in range(2):
        assert f"epoch {epoch}: 1000 and 1000 examples, 2000 in all" in done.stdout, done.stderr[-2000:]


@pytest.mark.slow
def test_the_training_example_runs_and_learns() -> None:
    script = EXAMPLES / "train.py"
    assert len(script.read_text().splitlines()) <= 36
    done = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True, timeout=250)
    lines = re.findall(r"^epoch (\d): (\d+) batches, loss (\S+)$", done.stdout, re.MULTILINE)
    assert [line[:2] for line in lines] == [("0", "32"), ("1", "32"), ("2", "32")]
    assert float(lines[-1][2]) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "numpy_train",
            [r"numpy epoch 2: 32 batches, error 0\.[01]\d+", "22 batches of epoch 2 are left after its tenth"],
        ),
        ("accelerate_train", ["epoch 1: 32 batches, loss", "22 batches of epoch 2 are left after its tenth"]),
        ("lightning_train", [r"epoch 0: step 32, loss", r"epoch 1: step 64, loss", r"epoch 2: step 96, loss 0\.[0-4]"]),
        ("hf_train", [r"step 40: epoch 1\.25, loss", r"step 64: epoch 2\.0, loss 0\.[0-4]"]),
    ],
)
def test_the_example_of_each_trainer_runs_and_goes_on_in_mid_epoch(name: str, lines: list[str]) -> None:
    quiet = os.environ | {"ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1"}
    script = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(script, check=True, capture_output=True, text=True, timeout=250, env=quiet)
    for line in lines:
        assert re.search(line, done.stdout), done.stdout
