"""A data set: from an address to its shards, from shards to blocks, and the index that keeps them.

`source` finds shards (`patterns` has globs and braces, `splits` keeps training and validation data apart, `recognition`
looks into files whose names are only numbered). `scan` finds blocks (`schemas` have to agree), `estimate` says what
they take in memory, and `blocks` gives them to all others: from the index, or else by a scan; `narrowing` gives those
of some columns. `indexing` is ``corgi2 index``; `index_tables` and `index_file` hold and store the index. `folder`
knows the layout of ``.corgi2/``, and `sealing` the version and checksum of every file in it. A new way of naming data,
or something new that is known of every block, goes here.
"""

from corgi2.dataset.blocks import Catalog, catalog_of, index_of, lineage_of, open_catalog, survey_of
from corgi2.dataset.estimate import SAMPLE_BLOCKS, forecast, slack_of, spread
from corgi2.dataset.folder import CORGI_FOLDER, DONE_NAME, INDEX_PATH, PLAN_NAME, run_folder, runs, unnumbered
from corgi2.dataset.index_file import cache_store, decode_index, encode_index, load_index, open_index, save_index
from corgi2.dataset.index_tables import (
    NO_ROUND,
    Index,
    joined,
    make_index,
    merge,
    of_index,
    whole_shards,
    with_entries,
    with_replaced,
    without,
)
from corgi2.dataset.indexing import Indexed, index
from corgi2.dataset.narrowing import narrow, refuse_nulls
from corgi2.dataset.patterns import pattern_of
from corgi2.dataset.scan import Survey, index_source, sketch_source, survey_source
from corgi2.dataset.schemas import schema_difference
from corgi2.dataset.sealing import seal, unseal
from corgi2.dataset.source import Source, find_source, generations, is_matched, left_alone, look, same_files

__all__ = [
    "CORGI_FOLDER",
    "DONE_NAME",
    "INDEX_PATH",
    "NO_ROUND",
    "PLAN_NAME",
    "SAMPLE_BLOCKS",
    "Catalog",
    "Index",
    "Indexed",
    "Source",
    "Survey",
    "cache_store",
    "catalog_of",
    "decode_index",
    "encode_index",
    "find_source",
    "forecast",
    "generations",
    "index",
    "index_of",
    "index_source",
    "is_matched",
    "joined",
    "left_alone",
    "lineage_of",
    "load_index",
    "look",
    "make_index",
    "merge",
    "narrow",
    "of_index",
    "open_catalog",
    "open_index",
    "pattern_of",
    "refuse_nulls",
    "run_folder",
    "runs",
    "same_files",
    "save_index",
    "schema_difference",
    "seal",
    "sketch_source",
    "slack_of",
    "spread",
    "survey_of",
    "survey_source",
    "unnumbered",
    "unseal",
    "whole_shards",
    "with_entries",
    "with_replaced",
    "without",
]
