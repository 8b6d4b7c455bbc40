"""``corgi2 index``: scan a data set once, and keep where its blocks lie."""

import os
from dataclasses import asdict, dataclass
from typing import Any

from corgi2.arguments import suggesting
from corgi2.budget import reading_bytes
from corgi2.dataset.estimate import forecast
from corgi2.dataset.folder import INDEX_PATH
from corgi2.dataset.index_file import cache_store, gone_from, load_index, save_index
from corgi2.dataset.index_tables import merge, of_index, without
from corgi2.dataset.scan import survey_source
from corgi2.dataset.source import find_source, left_alone
from corgi2.errors import DamageError, SourceError, StoreError
from corgi2.records import BLOCK_BYTES
from corgi2.sizes import format_size, parse_size, plural
from corgi2.stores import Options


@dataclass(frozen=True, slots=True, repr=False)
class Indexed:
    """What was found, and where it is kept."""

    index: str
    format: str
    shards: int
    blocks: int
    records: int
    bytes: int
    others: tuple[str, ...]
    """Files that are not shards."""

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return f"<Indexed: {self.as_text().splitlines()[0]}>"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def as_text(self) -> str:
        text = (
            f"{plural(self.records, 'record')} in {plural(self.blocks, 'block')} of "
            f"{plural(self.shards, f'{self.format} shard')}, "
            f"{format_size(self.bytes)}; the index is {self.index}"
        )
        return f"{text}\n{left_alone(self.others)}" if self.others else text


@suggesting
def index(
    src: str | os.PathLike[str],
    *,
    block_size: int | str = BLOCK_BYTES,
    cache: bool = False,
    buffer: int | str | None = None,
    src_options: Options | None = None,
) -> Indexed:
    """Scan a data set once and keep where its blocks lie, so that everything else starts at once.

    Run it again after adding shards: only new and changed ones are read. If some shards are damaged, the others are
    still indexed, and a `corgi2.DamageError` names the damaged ones.

    Args:
        src: A folder, one shard, a glob (``train-*.tar``) or a brace range (``train-{000000..000146}.tar``), on this
            machine or in ``s3://``, ``gs://``, ``az://``.
        block_size: Shards are cut into blocks of about this size, at record boundaries. A row group of Parquet is a
            block, whatever its size.
        cache: Keep the index in the user's cache folder, for data that is read-only, instead of in ``.corgi2/`` next
            to the data.
        buffer: Memory to read with, 1 GB by default; the largest record must fit.
        src_options: Options for the store, such as ``{"endpoint": "http://127.0.0.1:9000"}`` (docs/stores.md).
    """
    block_bytes = parse_size(block_size)
    if block_bytes < 1:
        raise ValueError(f"block_size={block_size!r} is less than one byte")
    source = find_source(src, src_options, "index")
    store = cache_store(source) if cache else source.store
    try:
        known = load_index(store)
    except SourceError:
        known = None  # damaged, or of another version: it is made anew
    if known is not None:
        known = without(known, {*gone_from(source, known)})
    memory = None if buffer is None else parse_size(buffer)
    survey = survey_source(source, block_bytes, known, memory)
    # footers estimate what blocks take in memory: corrected as the loader does, whose window would be another without
    made = forecast(of_index(source, survey.index), survey.index, None, reading_bytes(memory), skip_bad=True).index
    if made.shards.num_rows:
        try:
            save_index(store, merge(known, made))
        except StoreError as error:
            if not cache:
                error.hint = "cache=True keeps the index in your cache folder"
            raise
    if survey.damage:
        raise DamageError(survey.damage, hint="restore the damaged shards, and index again: only these are read then")
    counts = made.shards.num_rows, made.blocks.num_rows, made.records, made.bytes
    return Indexed(f"{store.url}/{INDEX_PATH}", source.format.name, *counts, source.others)
