"""From what a person types to the shards of one data set."""

import ast
import glob
import os
import re
import subprocess
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from corgi2.dataset.patterns import expand, glob_pattern, pattern_of
from corgi2.dataset.source import Source, find_source
from corgi2.errors import SourceError, StoreError
from corgi2.formats import suffixes
from corgi2.formats.foreign import FOREIGN
from corgi2.stores.opening import open_store
from tests.conftest import S3


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{tmp_path}/data" if request.param == "local" else f"memory://{uuid.uuid4().hex}/data"


def _fill(root: str, paths: Iterable[str]) -> None:
    store = open_store(root)
    for path in paths:
        store.publish(path, [b"1"])


def _names(source: Source) -> list[str]:
    """Full addresses, for the root of a source depends on how it was typed."""
    return [source.shard(number).name for number in range(len(source.entries))]


def _refusal(uri: str, function: str = "inspect") -> str:
    with pytest.raises(SourceError) as caught:
        find_source(uri, None, function)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def _typed(line: str) -> str:
    """What an error shows that could be named."""
    shown = line.partition("for example: ")[2].partition(" in corgi2.")[0]
    return str(ast.literal_eval(shown))


def test_a_folder_is_all_its_shards_by_path(root: str) -> None:
    _fill(root, ["b.tar", "a/c.tar", "a.tar", "a-b.tar"])
    source = find_source(root)
    assert [entry.path for entry in source.entries] == ["a-b.tar", "a.tar", "a/c.tar", "b.tar"]
    assert (source.format.suffix, source.others, source.url) == (".tar", (), root)
    assert _names(find_source(root + "/")) == _names(source)


def test_what_is_no_shard_is_listed(root: str) -> None:
    others = ["README", "labels.txt", "a.tar.idx", "_SUCCESS", "_x.tar", ".hidden/b.tar", "sub/notes.md"]
    _fill(root, ["a.tar", "sub/b.tar", ".corgi2/index", "sub/.corgi2/index", *others])
    source = find_source(root)
    assert [entry.path for entry in source.entries] == ["a.tar", "sub/b.tar"]
    assert source.others == tuple(sorted(others))


def test_one_file_is_one_shard(root: str) -> None:
    _fill(root, ["train-0.tar", "val-0.tar"])
    assert _names(find_source(f"{root}/val-0.tar")) == [f"{root}/val-0.tar"]
    assert "there is no such file" in _refusal(f"{root}/val-1.tar")


def test_a_glob_takes_what_it_matches(root: str) -> None:
    _fill(root, ["train-0.tar", "train-1.tar", "val-0.tar", "train-x.txt", "sub/train-2.tar"])
    source = find_source(f"{root}/train-*")
    assert _names(source) == [f"{root}/train-0.tar", f"{root}/train-1.tar"]
    assert source.others == ("train-x.txt",)
    assert len(find_source(f"{root}/**/train-*.tar").entries) == 3
    assert len(find_source(f"{root}/train-[1-9].tar").entries) == 1


def test_a_brace_range_takes_exactly_its_shards(root: str) -> None:
    _fill(root, [f"train-{n:06d}.tar" for n in range(12)])
    assert len(find_source(f"{root}/train-{{000003..000010}}.tar").entries) == 8
    assert len(find_source(f"{root}/train-{{000003,000010}}.tar").entries) == 2
    assert len(find_source(f"{root}/train-{{000000..000001}}*.tar").entries) == 2


def test_ranges_and_globs_work_below_a_bucket(s3: S3) -> None:
    for number in range(3):
        s3.raw("PUT", f"/train/train-{number:06d}.tar", b"1")
    for typed in ("", "/train-*.tar", "/train-{000000..000002}.tar", "/**"):
        source = find_source(s3.url + typed, s3.options)
        assert _names(source) == [f"{s3.url}/train-{number:06d}.tar" for number in range(3)]
    whole = find_source(f"s3://{s3.bucket}/t*/train-*.tar", s3.options)
    assert len(whole.entries) == 3


def test_a_range_with_a_missing_shard_is_refused(root: str) -> None:
    _fill(root, ["train-0.tar", "train-2.tar"])
    line = _refusal(f"{root}/train-{{0..3}}.tar")
    assert f"2 of 4 shards are missing, the first is {root}/train-1.tar" in line


@pytest.mark.parametrize("braces", ["{3..1}", "{a}", "{}", "{0..}", "{a..c}"])
def test_braces_that_make_no_sense_are_refused(root: str, braces: str) -> None:
    with pytest.raises(ValueError, match=re.escape(braces)):
        find_source(f"{root}/train-{braces}.tar")


NUMBERS = st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(1, 4), st.integers(1, 4))


@settings(max_examples=60)
@given(NUMBERS)
@example((1, 9, 1, 3))
@example((8, 95, 2, 3))
def test_a_range_means_what_bash_makes_of_it(numbers: tuple[int, int, int, int]) -> None:
    first, count, width, other = numbers
    pattern = f"a{{{first:0{width}d}..{first + count:0{other}d}}}.{{tar,{{x,y}}z}}"
    shown = subprocess.run(["bash", "-c", f"echo {pattern}"], capture_output=True, text=True, check=True)
    assert set(expand(pattern)) == set(shown.stdout.split())


WORDS = st.text("ab.-0]!", min_size=1, max_size=3)
PARTS = st.one_of(
    WORDS, st.text("ab.*?-0", min_size=1, max_size=4), st.sampled_from(["**", "[!a]*", "[ab.]?", "*.[b]"])
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.sets(st.lists(WORDS, min_size=1, max_size=3).map("/".join), max_size=8), parts=st.lists(PARTS, max_size=3)
)
@example(files={"a.b", "axb", "c/a.b"}, parts=["a[.]b"])
@example(files={".a", "a/.b", ".a/b", "a/b"}, parts=["**", "*"])
def test_a_glob_means_what_it_means_to_the_standard_library(
    tmp_path_factory: pytest.TempPathFactory, files: set[str], parts: list[str]
) -> None:
    assume(parts and not {".", ".."} & {name for file in [*files, "/".join(parts)] for name in file.split("/")})
    assume(not any(other.startswith(file + "/") for file in files for other in files))
    folder, pattern = tmp_path_factory.mktemp("glob"), "/".join(parts)
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    matched = glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 - Path.glob takes hidden files
    expected = {path for path in matched if (folder / path).is_file() and not path.endswith("/")}  # it finds "file/"
    assert {file for file in files if re.fullmatch(glob_pattern(pattern), file)} == expected


SPLITS = {
    "prefixes": ["train-0.tar", "train-1.tar", "val-0.tar", "test-0.tar"],
    "folders": ["train/0.tar", "train/1.tar", "validation/0.tar"],
    "deep folders": ["en/train/0.tar", "de/train/0.tar", "en/test/0.tar"],
    "no train": ["dev-0.tar", "dev-1.tar", "test-0.tar"],
    "an unnamed one": ["0.tar", "test-0.tar"],
    "one shard of each": ["train.tar", "test.tar"],
    "upper case": ["Train-0.TAR", "Train-1.TAR", "TEST-0.TAR"],
    "odd letters": ["train-[1]'s.tar", "train-[2]'s.tar", "val.tar"],
    "mixed formats": ["train/0.tar", "train/0.parquet", "train/1.parquet", "val/0.tar"],
    "names within folders": ["val/a-0.tar", "val/val-0.tar", "test/0.tar"],
}


@pytest.mark.parametrize("paths", SPLITS.values(), ids=SPLITS)
def test_several_splits_are_refused_with_a_command_that_works(root: str, paths: list[str]) -> None:
    _fill(root, paths)
    line = _refusal(root)
    assert "several splits lie together" in line
    found = find_source(_typed(line))
    assert set(_names(found)) < {f"{root}/{path}" for path in paths}


NAMES = st.tuples(
    st.sampled_from(["", "train/", "val/", "x/", "x/test/"]),
    st.sampled_from(["train-", "val-", "test_", "", "a-train-", "b "]),
    st.integers(0, 3),
    st.sampled_from([".tar", ".parquet"]),
).map(lambda parts: f"{parts[0]}{parts[1]}{parts[2]}{parts[3]}")


@settings(max_examples=200)
@given(st.sets(NAMES, min_size=1, max_size=10))
def test_every_refusal_that_shows_a_command_shows_one_that_works(names: set[str]) -> None:
    root = f"memory://{uuid.uuid4().hex}/data"
    _fill(root, names)
    try:
        find_source(root)
    except SourceError as error:
        found = _names(find_source(_typed(str(error))))
        assert 0 < len(found) < len(names)


@pytest.mark.parametrize("function", ["index", "shuffle"])
def test_an_error_of_the_library_speaks_of_the_function_that_was_called(root: str, function: str) -> None:
    _fill(root, SPLITS["prefixes"])
    assert _refusal(root, function).endswith(f"for example: '{root}/train-*.tar' in corgi2.{function}(…)")


def test_splits_that_were_named_one_by_one_are_taken(root: str) -> None:
    _fill(root, SPLITS["prefixes"])
    assert len(find_source(f"{root}/{{train,val}}-*.tar").entries) == 3
    assert "several splits" in _refusal(f"{root}/*.tar")


def test_a_folder_above_names_no_split(tmp_path: Path) -> None:
    _fill(f"{tmp_path}/train/val/test/data", ["train-0.tar", "val-0.tar"])
    assert "several splits" in _refusal(f"{tmp_path}/train/val/test/data")


@pytest.mark.parametrize("paths", [["train-0.tar", "extra-0.tar"], ["latest-0.tar", "contest-0.tar"], ["val-0.tar"]])
def test_one_split_is_taken(root: str, paths: list[str]) -> None:
    _fill(root, paths)
    assert len(find_source(root).entries) == len(paths)


def test_hive_folders_are_refused_and_one_of_them_is_taken(root: str) -> None:
    _fill(root, ["day=2024-01-01/0.parquet", "day=2024-01-02/0.parquet"])
    for typed in (root, f"{root}/*/*.parquet", f"{root}/day=*/0.parquet"):
        assert "Hive folders keep a column's values only in the path" in _refusal(typed)
    assert len(find_source(f"{root}/day=2024-01-01").entries) == 1


def test_mixed_formats_are_refused_with_a_command_that_works(root: str) -> None:
    _fill(root, ["a/0.tar", "a/1.tar", "b/0.tar", "b/0.jsonl"])
    line = _refusal(root)
    assert "several formats lie together (3 .tar, 1 .jsonl)" in line
    assert _names(find_source(_typed(line))) == [f"{root}/a/0.tar", f"{root}/a/1.tar", f"{root}/b/0.tar"]


def test_hidden_and_unfinished_files_are_not_named_by_a_command(root: str) -> None:
    _fill(root, ["0.tar", "1.tar", "0.jsonl", ".x/2.tar", ".corgi2/3.tar", "sub/.corgi2/4.tar"])
    assert _names(find_source(_typed(_refusal(root)))) == [f"{root}/0.tar", f"{root}/1.tar"]
    assert len(find_source(f"{root}/**/*.tar").entries) == 2
    _fill(root, ["sub/5.tar", "_temporary/6.tar"])
    assert "_temporary" not in "".join(_names(find_source(_typed(_refusal(root)))))


def test_no_shard_at_all_is_refused(root: str) -> None:
    _fill(root, ["a.txt"])
    assert "1 other file, such as a.txt, ends in none of .tar " in _refusal(root)
    _fill(root, ["b.md"])
    assert "2 other files, such as a.txt, end in none of .tar " in _refusal(root)
    assert "there is no shard" in _refusal(f"{root}/*.tar")


def test_nothing_there_is_refused(tmp_path: Path) -> None:
    assert "there is no such file or folder" in _refusal(f"{tmp_path}/none")
    assert "the folder is empty" in _refusal(str(tmp_path))
    assert "the folder is empty" in _refusal(f"memory://{uuid.uuid4().hex}/none")


def test_a_name_that_looks_like_a_glob_is_taken_as_it_is(tmp_path: Path) -> None:
    _fill(str(tmp_path), ["data[1]/a{0..9}.tar", "data1/a.tar"])
    assert _names(find_source(tmp_path / "data[1]")) == [f"{tmp_path}/data[1]/a{{0..9}}.tar"]
    assert _names(find_source(tmp_path / "data[1]" / "a{0..9}.tar")) == [f"{tmp_path}/data[1]/a{{0..9}}.tar"]


def test_a_bucket_that_is_not_there_is_one_line(s3: S3) -> None:
    with pytest.raises(StoreError, match="NoSuchBucket") as caught:
        find_source("s3://no-such-bucket/train", s3.options)
    assert "\n" not in str(caught.value)


def test_a_glob_looks_no_deeper_than_it_says(root: str) -> None:
    _fill(root, ["a-1.tar", "deep/a-2.tar", "deep/er/a-3.tar", "deep/er/est/a-4.tar"])
    store = open_store(root)
    assert [[entry.path for entry in store.list(levels=levels)] for levels in (1, 2)] == [
        ["a-1.tar"],
        ["a-1.tar", "deep/a-2.tar"],
    ]
    assert [entry.path for entry in store.list("deep", levels=1)] == ["deep/a-2.tar"]
    assert len(_names(find_source(f"{root}/a-*.tar"))) == 1
    assert len(_names(find_source(f"{root}/*/*/a-*.tar"))) == 1
    assert len(_names(find_source(f"{root}/**/a-*.tar"))) == 4


def test_a_glob_enters_no_folder_that_it_cannot_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(str(tmp_path), ["a-1.tar", "home/of/a/million/files.tar"])
    entered: list[Path] = []
    scandir = os.scandir

    def enter(folder: Path) -> object:
        entered.append(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", enter)
    find_source(f"{tmp_path}/a-*.tar")
    assert entered == [tmp_path]


def test_a_folder_in_a_store_may_be_named_like_a_shard(root: str) -> None:
    _fill(root, ["table.parquet/part-0.parquet", "table.parquet/part-1.parquet", "table.parquet/_SUCCESS"])
    source = find_source(f"{root}/table.parquet")
    assert [entry.path for entry in source.entries] == ["part-0.parquet", "part-1.parquet"]
    assert source.others == ("_SUCCESS",)


def test_a_range_beyond_all_reason_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names more than 10,000,000 shards"):
        find_source(f"{tmp_path}/a-{{00..9999999999}}.tar")


EXAMPLES = {
    "CSV": "part-0.csv.gz",
    "TSV": "part-0.TSV",
    "HDF5": "train.h5",
    "Zarr": "array.zarr/.zarray",
    "Lance": "table.lance/data/1.lance",
    "LitData": "chunk-0-12.zstd.bin",
    "Megatron": "text_document.idx",
    "ArrayRecord": "train.array_record-00000-of-00010",
    "MDS (MosaicML Streaming)": "shard.00000.mds.zstd",
    "NumPy": "x.npz",
    "JSON": "train.json",
    "pickle": "batch.pt",
    "FFCV": "train.beton",
    "LMDB": "train/data.mdb",
    "image": "cat/1.JPEG",
    "zip": "all.zip",
}


def test_formats_that_are_recognised_are_named_with_the_way_to_convert_them(root: str) -> None:
    assert EXAMPLES.keys() == {each.name for each in FOREIGN}
    for number, each in enumerate(FOREIGN):
        _fill(f"{root}/{number}", [EXAMPLES[each.name]])
        line = _refusal(f"{root}/{number}")
        assert f"1 {each.name} file" in line
        assert f"which corgi2 does not read; to convert: {each.way}" in line


def test_what_describes_the_files_beside_it_is_not_taken_for_the_data(root: str) -> None:
    _fill(root, ["data-00000.beton", "dataset_info.json", "state.json"])
    assert "1 FFCV file, data-00000.beton, which corgi2 does not read" in _refusal(root)


def test_the_documentation_lists_every_format_that_is_recognised() -> None:
    text = Path("docs/formats.md").read_text("utf-8")
    for each in FOREIGN:
        assert f"| {each.name} | {each.files} | {each.way} |" in text


def test_no_suffix_of_ours_is_taken_for_a_foreign_one() -> None:
    assert not [suffix for suffix in suffixes() for each in FOREIGN if each.is_of(f"a/train-0{suffix}")]


def test_a_wrong_path_is_answered_with_the_nearest(tmp_path: Path) -> None:
    _fill(str(tmp_path), ["train/0.tar"])
    assert f"did you mean {tmp_path}/train?" in _refusal(f"{tmp_path}/trian")
    assert f"did you mean {tmp_path}/train?" in _refusal(f"{tmp_path}/trian/a/0.tar")
    assert f"{tmp_path} holds no zzz" in _refusal(f"{tmp_path}/zzz")


@given(
    st.text("abc/-_.", min_size=1, max_size=9),
    st.integers(0, 1200),
    st.integers(1, 40),
    st.integers(1, 6),
    st.sampled_from([".tar", "-x.jsonl", ".tar.gz"]),
)
def test_what_a_shell_made_of_a_range_is_named_by_that_range(
    start: str, first: int, more: int, width: int, end: str
) -> None:
    words = [f"{start}{number:0{width}d}{end}" for number in range(first, first + more + 1)]
    assert [*expand(pattern_of(words))] == words


@given(st.sets(st.text("ab01[*{", max_size=6), min_size=2, max_size=9), st.sampled_from([".tar", ".jsonl"]))
def test_any_words_of_a_shell_are_matched_by_their_pattern(names: set[str], end: str) -> None:
    words = sorted(f"data/x{name}{end}" for name in names)
    pattern = pattern_of(words)
    matched = {word for each in expand(pattern) for word in words if re.fullmatch(glob_pattern(each), word)}
    assert matched == set(words)
