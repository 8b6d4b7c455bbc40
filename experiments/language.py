"""A byte-level language model, trained for one epoch on shards that are sorted by source, in the order of every method.

``python -m experiments.language --data FOLDER`` trains what is not yet trained; several processes may share the work.
``python -m experiments.language_show`` shows what came out.

Every sequence is seen once, as in pretraining. Rates are chosen for each arm with a seed that is not used again.
CorgiPile and Corgi² read JSON lines through the real command and the real loader.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

import corgi2
from corgi2.online import Picks
from corgi2.order.simulate import ORDERS, Layout, h_of_labels, r_of_labels
from experiments.data import DEFAULT, SHARDS, make_once
from experiments.results import parser
from experiments.runs import Run, kept, once
from experiments.texts import SOURCES, Source
from experiments.training import Stopwatch

TUNED = 1000
"""The seed that chooses rates."""

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to order the sequences."""

    name: str
    n: int = 8
    passes: int = 0
    picks: Picks | None = None
    """Of the loader; None for an order in memory."""
    ranges: int | None = None


ARMS = (
    Arm("random access"),
    Arm("shuffle once"),
    Arm("CorgiPile, 2 blocks", 2, picks="even"),
    Arm("CorgiPile, 8 blocks", picks="even"),
    Arm("Corgi², random picks", passes=1, picks="random"),
    Arm("Corgi², even picks", passes=1, picks="even"),
    Arm("Corgi², ranges of 1/4 in rounds", passes=1, picks="even", ranges=4),
    Arm("Corgi², 2 passes, even picks", passes=2, picks="even"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What is trained, how, and how often."""

    sources: Sequence[Source] = SOURCES
    shards: int = 16
    """Of each source, one block each."""
    b: int = 108
    length: int = 256
    held: int = 144
    """Sequences of each source that are not trained on."""
    batch: int = 16
    width: int = 128
    layers: int = 2
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    seeds: int = 8

    @property
    def key(self) -> str:
        """What its runs have in common."""
        shape = f"{len(self.sources)} sources, {self.shards} shards of {self.b} × {self.length} bytes"
        return f"language, {shape}, width {self.width}, {self.layers} layers, batch {self.batch}"

    @property
    def total(self) -> int:
        return len(self.sources) * self.shards * self.b


@dataclass(frozen=True)
class Corpus:
    """Sequences of bytes, source by source."""

    protocol: Protocol
    data: Path = DEFAULT
    described: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def _parts(self) -> tuple[Bytes, Bytes]:
        """Those to train on, and those held out, which lie at the end of each source."""
        given = self.protocol
        train, held = [], []
        for source in given.sources:
            text = source.text((given.shards * given.b + given.held) * given.length, self.data)
            self.described.append(source.described(text))
            rows = np.frombuffer(text, np.uint8).reshape(-1, given.length)
            train.append(rows[: -given.held])
            held.append(rows[-given.held :])
        return np.concatenate(train), np.stack(held)

    @property
    def train(self) -> Bytes:
        return self._parts[0]

    @property
    def held(self) -> Bytes:
        """By source."""
        return self._parts[1]

    @cached_property
    def source(self) -> Ints:
        """Of each sequence that is trained on."""
        given = self.protocol
        return np.repeat(np.arange(len(given.sources)), given.shards * given.b)

    def stored(self) -> Path:
        """JSON lines, written once: a block per shard, of one source."""
        folder = SHARDS / self.protocol.key
        return folder if folder.exists() else make_once(folder, self._write)

    def _write(self, folder: Path) -> None:
        for shard, start in enumerate(range(0, self.protocol.total, self.protocol.b)):
            lines = [
                json.dumps(
                    {"row": row, "source": int(self.source[row]), "text": self.train[row].tobytes().decode("latin-1")}
                )
                for row in range(start, start + self.protocol.b)
            ]
            (folder / f"part-{shard:06d}.jsonl").write_text("".join(line + "\n" for line in lines))


class Attention(nn.Module):
    """Each byte looks at those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.inner, self.outer = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.inner(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        found: torch.Tensor = self.outer(seen.transpose(1, 2).reshape(rows, length, width))
        return found


class Unit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.attention = nn.LayerNorm(width), Attention(width, max(1, width // 32))
        self.second = nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        found: torch.Tensor = x + self.wide(self.second(x))
        return found


class Model(nn.Module):
    """A transformer that predicts the next byte; the same table reads bytes and writes them."""

    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(256, width), nn.Embedding(length, width)
        self.units = nn.Sequential(*(Unit(width) for _ in range(layers)), nn.LayerNorm(width))
        for weights in (self.table.weight, self.place.weight):
            nn.init.normal_(weights, std=0.02)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The loss of each sequence."""
        before, after = rows[:, :-1], rows[:, 1:]
        inner = self.units(self.table(before) + self.place.weight[: before.shape[1]])
        told = functional.linear(inner, self.table.weight)
        return functional.cross_entropy(told.transpose(1, 2), after, reduction="none").mean(dim=1)


def epoch(corpus: Corpus, arm: Arm, folder: Path, seed: int) -> Iterator[tuple[Ints, Bytes]]:
    """Batches: the numbers of sequences, and these."""
    given = corpus.protocol
    if arm.picks is None:
        layout = Layout(given.total // given.b, given.b, arm.n)
        order = ORDERS[arm.name](layout, seed, 0)
        for start in range(0, len(order), given.batch):
            some = order[start : start + given.batch]
            yield some, corpus.train[some]
        return
    loader = corgi2.Loader(folder, buffer_blocks=arm.n, batch_size=given.batch, seed=seed, picks=arm.picks)
    for found in loader:
        text = "".join(found["text"]).encode("latin-1")
        yield np.array(found["row"]), np.frombuffer(text, np.uint8).reshape(-1, given.length)


def mix(corpus: Corpus, arm: Arm, seed: int, place: Path) -> Path:
    """The shards that the arm reads."""
    stored = corpus.stored()
    if arm.passes == 0:
        return stored
    size = sum(file.stat().st_size for file in stored.glob("*.jsonl")) // len(list(stored.glob("*.jsonl")))
    corgi2.shuffle(
        stored,
        place / "mixed",
        buffer="1GB",
        buffer_blocks=arm.n,
        passes=arm.passes,
        seed=seed,
        range_size=size // arm.ranges if arm.ranges else None,
    )
    return place / "mixed"


class Training:
    """One model, from its first step to its last evaluation."""

    def __init__(self, corpus: Corpus, seed: int, rate: float) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        given = corpus.protocol
        self.corpus, self.steps = corpus, -(-given.total // given.batch)
        self.model = Model(given.width, given.layers, given.length)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.05)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, rate, total_steps=self.steps + 1, pct_start=0.1, cycle_momentum=False
        )

    def run(self, batches: Iterator[tuple[Ints, Bytes]]) -> dict[str, Any]:
        """The loss of every stretch of training, and by source at twelve moments, the last of which is the end."""
        losses, numbers, over_time = [], [], []
        marks = {round(self.steps * part / 12) for part in range(1, 12)}
        for step, (number, rows) in enumerate(batches, 1):
            losses.append(self._step(rows))
            numbers.append(number)
            if step in marks:
                over_time.append({"step": step, "loss": self.evaluate(6).mean()})
        by_source = self.evaluate(1)
        over_time.append({"step": self.steps, "loss": by_source.mean()})
        return {
            "loss": float(by_source.mean()),
            "by_source": by_source.tolist(),
            "over_time": [{"step": one["step"], "loss": float(one["loss"])} for one in over_time],
            "train_loss": [float(part.mean()) for part in np.array_split(np.array(losses), min(108, len(losses)))],
            **self._quality(np.concatenate(numbers)),
        }

    def _step(self, rows: Bytes) -> float:
        self.model.train()
        loss = self.model(torch.from_numpy(rows.astype(np.int64))).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return float(loss.detach())

    def evaluate(self, every: int) -> npt.NDArray[np.float64]:
        """The mean loss of held-out sequences, source by source; of all, or of some."""
        self.model.eval()
        some = self.corpus.held[:, ::every].astype(np.int64)
        held = some.reshape(-1, some.shape[-1])
        with torch.no_grad():
            parts = [self.model(torch.from_numpy(held[start : start + 64])) for start in range(0, len(held), 64)]
        found = torch.cat(parts).double().numpy().reshape(some.shape[:2])
        return np.asarray(found.mean(axis=1))

    def _quality(self, numbers: Ints) -> dict[str, Any]:
        """What SGD felt: R, with a memory of eight blocks, and H of windows of each size."""
        given, labels = self.corpus.protocol, self.corpus.source[numbers]
        classes = len(given.sources)
        h = {str(n): h_of_labels(labels, classes, n * given.b) for n in sorted({arm.n for arm in ARMS})}
        return {
            "H_labels": h,
            "R_labels": r_of_labels(labels, classes, 8 * given.b),
            "seen": len(set(numbers.tolist())),
        }


def train(corpus: Corpus, arm: Arm, seed: int, rate: float) -> Run:
    """One run, from shards to the last evaluation."""
    SHARDS.mkdir(exist_ok=True)
    offline, online = Stopwatch(), Stopwatch()
    place = Path(tempfile.mkdtemp(dir=SHARDS))
    try:
        offline.start()
        folder = mix(corpus, arm, seed, place) if arm.picks else place
        offline.stop()
        online.start()
        found = Training(corpus, seed, rate).run(epoch(corpus, arm, folder, seed))
        online.stop()
    finally:
        shutil.rmtree(place)
    head = {"arm": arm.name, "n": arm.n, "seed": seed, "rate": rate, "sources": corpus.described}
    seconds = {"cpu_seconds": online.cpu, "offline_cpu_seconds": offline.cpu, "offline_seconds": offline.seconds}
    return head | seconds | found


def run(protocol: Protocol, data: Path) -> None:
    """Train what is missing: first the rates of all arms, then all arms of one seed before the next."""
    corpus = Corpus(protocol, data)
    for arm in ARMS:
        for rate in protocol.rates:
            _once(corpus, arm, TUNED, rate)
    for seed in range(protocol.seeds):
        for arm in ARMS:
            chosen = best_rate(kept(protocol.key), arm.name, protocol.rates)
            if chosen is None:
                print(f"{arm.name}: its rate is still being chosen elsewhere", flush=True)
            else:
                _once(corpus, arm, seed, chosen)


def _once(corpus: Corpus, arm: Arm, seed: int, rate: float) -> None:
    name = f"{arm.name}, rate {rate:g}, seed {seed}"
    found = once(corpus.protocol.key, name, partial(train, corpus, arm, seed, rate))
    if found is not None:
        print(f"{name}: {found['loss']:.4f}, R {found['R_labels']:.3g}, {found['cpu_seconds']:.0f} s", flush=True)


def best_rate(runs: Sequence[Run], arm: str, rates: Sequence[float]) -> float | None:
    """The one with the least loss; None as long as one of them was not tried."""
    found = {run["rate"]: run["loss"] for run in runs if run["arm"] == arm and run["seed"] == TUNED}
    return min(found, key=lambda rate: found[rate]) if set(found) >= set(rates) else None


def main(arguments: list[str] | None = None) -> None:
    asks = parser(__doc__)
    asks.add_argument("--data", type=Path, default=DEFAULT, help="the folder with the data sets")
    asked = asks.parse_args(arguments)
    run(Protocol(), asked.data)


if __name__ == "__main__":
    main()
