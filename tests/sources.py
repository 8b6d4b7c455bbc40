"""Data sets to shuffle, in every format, and what became of them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from corgi2.dataset.estimate import forecast
from corgi2.dataset.sealing import unseal
from corgi2.offline import outline
from tests.shards import compressed, parquet_of, tar_of

SUFFIXES = [".tar", ".tar.gz", ".parquet", ".jsonl", ".jsonl.zst"]


def write_source(folder: Path, suffix: str, counts: list[int]) -> None:
    """Shards with so many records each; a record names its shard, keys restart in every shard."""
    folder.mkdir(parents=True)
    for shard, count in enumerate(counts):
        texts = [f"{shard} {n} {'x' * (n * 37 % 200)}" for n in range(count)]
        if ".tar" in suffix:
            data = compressed(tar_of([(f"{n:04d}.txt", text.encode()) for n, text in enumerate(texts)]), suffix)
        elif suffix == ".parquet":
            data = parquet_of(pa.table({"t": texts, "shard": [shard] * count}), row_group_size=10)
        else:
            data = compressed("\n".join(json.dumps({"t": text}) for text in texts).encode(), suffix)
        (folder / f"data-{shard:04d}{suffix}").write_bytes(data)


def content(folder: Path) -> dict[str, bytes]:
    """All shards of a folder, and what corgi2 keeps beside them but for the index, which has times in it."""
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("index", "lock") and path.suffix != ".corgi2-tmp"
    ]
    return {str(path.relative_to(folder)): _without_key(path) for path in paths}


def _without_key(path: Path) -> bytes:
    """What a shuffle keeps depends on the key of its hashes, which no two have in common; nothing else may."""
    data = path.read_bytes()
    if not data.startswith(b"corgi2 ") or path.name.startswith("source-"):
        return data
    body = bytes(unseal(data, str(path), "")).decode()
    return re.sub(r'"(low|high|loose_low|loose_high|key|plan)": ("\w*"|\d+)', "", body).encode()


class DyingError(Exception):
    """A process that ends here."""


def write_tars(folder: Path, shards: int, records: int, classes: int = 10) -> Path:
    folder.mkdir(parents=True)
    for shard in range(shards):
        samples = [
            member
            for number in range(records)
            for member in (
                (f"{shard:04d}-{number:04d}.cls", b"%d" % (shard % classes)),
                (f"{shard:04d}-{number:04d}.bin", bytes(700)),
            )
        ]
        (folder / f"train-{shard:04d}.tar").write_bytes(tar_of(samples))
    return folder


def underestimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block takes four times what is planned for it."""
    real = forecast

    def too_small(*arguments: Any) -> Any:
        guess = real(*arguments)
        blocks = guess.index.blocks
        place = blocks.schema.get_field_index("footprint")
        quarter = pa.array(guess.index.column("footprint") // 4)
        blocks = blocks.set_column(place, blocks.schema.field(place), quarter)
        return replace(guess, index=replace(guess.index, blocks=blocks))

    monkeypatch.setattr(outline, "forecast", too_small)


def enough_for(error: object) -> int:
    """The buffer that an error names."""
    match = re.search(r"(?:buffer='|--buffer )(\d+)MB'? would do", str(error))
    assert match, error
    return int(match[1]) * 1_000_000


def write_uneven(folder: Path, suffix: str) -> None:
    """As real data is: shards that hardly compress, and one that expands to a hundred times its size."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for shard in range(6):
        texts = ["x" * 1000] * 20_000 if shard == 3 else [random.bytes(500).hex() for _ in range(1000)]
        if suffix == ".parquet":
            data = parquet_of(pa.table({"t": texts}), compression="zstd")
        else:
            data = compressed("".join(f'{{"t": "{text}"}}\n' for text in texts).encode(), suffix)
        (folder / f"data-{shard}{suffix}").write_bytes(data)
