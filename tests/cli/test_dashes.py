"""The library speaks of arguments, the command line of options, and neither touches a name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corgi2
from corgi2.cli import cli
from corgi2.cli.dashes import in_dashes

SAID = {
    "buffer='300MB' would do": "--buffer 300MB would do",
    "seed=-1 is negative": "--seed -1 is negative",
    "holds passes=2, not passes=1": "holds --passes 2, not --passes 1",
    "with skip_bad=True, not skip_bad=False": "with --skip-bad, not no --skip-bad",
    "(with restart=True, if it has begun)": "(with --restart, if it has begun)",
    "give records=, bytes=, too": "give --records, --bytes, too",
    "h_d= says what label= would": "--h-d says what --label would",
}
KEPT = [
    "/data/label=cat/part-0.parquet: at byte 3: damaged",
    "s3://bucket/seed=1/passes=2/x.tar: is gone",
    "corgi2 inspect label=cat/part-0.parquet",
    'CorgiDataset("DST", buffer="4.0GB", picks="even")',
    "tar --sort=name -cf NEW.tar FOLDER",
    "give access_key_id=…, or anonymous=true",
]


@pytest.mark.parametrize(("text", "shown"), SAID.items())
def test_arguments_become_options(text: str, shown: str) -> None:
    assert in_dashes(text) == shown


@pytest.mark.parametrize("text", KEPT)
def test_names_code_and_what_is_no_option_stay(text: str) -> None:
    assert in_dashes(text) == text


@given(st.sampled_from(sorted(cli.commands["shuffle"].make_context("x", [], resilient_parsing=True).params)), st.data())
def test_no_folder_is_renamed(name: str, data: st.DataObject) -> None:
    value = data.draw(st.from_regex(r"[a-z0-9._-]{0,8}", fullmatch=True))
    path = f"/data/{name}={value}/{name}={value}.tar"
    assert in_dashes(f"{path}: is gone; restore {path}") == f"{path}: is gone; restore {path}"


MISSPELT: list[tuple[Any, str, str]] = [
    (corgi2.shuffle, "bufer", "shuffle() has no argument 'bufer'; did you mean 'buffer'?"),
    (corgi2.Loader, "batchsize", "Loader() has no argument 'batchsize'; did you mean 'batch_size'?"),
    (corgi2.verify, "quik", "verify() has no argument 'quik'; did you mean 'quick'?"),
    (corgi2.inspect, "lable", "inspect() has no argument 'lable'; did you mean 'label'?"),
    (corgi2.index, "cach", "index() has no argument 'cach'; did you mean 'cache'?"),
    (corgi2.plan, "epoch", "plan() has no argument 'epoch'; did you mean 'epochs'?"),
]


@pytest.mark.parametrize(("function", "argument", "words"), MISSPELT, ids=[argument for _, argument, _ in MISSPELT])
def test_a_misspelt_argument_is_answered_with_the_nearest(function: Any, argument: str, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        function("a", **{argument: 1})
    assert str(caught.value) == words
