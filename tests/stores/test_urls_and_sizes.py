"""Text that people type: addresses and sizes."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2.sizes import format_size, parse_size
from corgi2.stores.local import LocalStore
from corgi2.stores.opening import open_store
from corgi2.stores.url import Url, parse_url
from tests.conftest import SECRET

SIZES = {
    "4096": 4096,
    "4096B": 4096,
    "64KB": 64_000,
    "8 mb": 8_000_000,
    "1.5GiB": 3 << 29,
    " 1TB ": 10**12,
    "0.001KB": 1,
    "1kib": 1024,
    "8G": 8 * 10**9,
    "8Gi": 8 << 30,
    "27T": 27 * 10**12,
    "64k": 64_000,
    "2 PB": 2 * 10**15,
}


@pytest.mark.parametrize(("text", "count"), SIZES.items())
def test_a_size_is_what_people_write(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "GB", "8 XB", "-1", "1.5", "1e6", "8GB 8MB", "½GB", -1, True])
def test_what_is_no_size_is_refused_and_shown(text: str | int) -> None:
    with pytest.raises(ValueError, match="size") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)


@given(st.integers(0, 10**18))
def test_whole_numbers_of_bytes_are_kept(count: int) -> None:
    assert parse_size(count) == parse_size(str(count)) == parse_size(f"{count}B") == count


@given(st.integers(0, 10**15))
def test_a_shown_size_is_short_and_near(count: int) -> None:
    shown = format_size(count)
    assert len(shown) <= 8 or count >= 10**15
    assert abs(parse_size(shown) - count) <= max(0.5, 0.06 * count)


ADDRESSES = {
    "s3://bucket": Url("s3", "bucket", ""),
    "s3://bucket/": Url("s3", "bucket", ""),
    "S3://bucket/a/b/": Url("s3", "bucket", "a/b"),
    "s3a://bucket/a": Url("s3", "bucket", "a"),
    "gcs://bucket/a": Url("gs", "bucket", "a"),
    "az://container/a b": Url("az", "container", "a b"),
    "memory://m/train-{0..9}.tar": Url("memory", "m", "train-{0..9}.tar"),
    "file:///data/a%20b": Url("file", "", "/data/a b"),
    "file://localhost/data": Url("file", "", "/data"),
    "/data/./a/../b/": Url("file", "", "/data/b"),
}


@pytest.mark.parametrize(("text", "url"), ADDRESSES.items())
def test_an_address_is_what_people_type(text: str, url: Url) -> None:
    assert parse_url(text) == url
    assert parse_url(str(url)) == url


def test_a_relative_path_and_a_home_are_made_absolute() -> None:
    assert parse_url("data").path == str(Path.cwd() / "data")
    assert parse_url("~/data").path == str(Path.home() / "data")


@pytest.mark.parametrize(
    ("text", "problem"),
    {
        "": "names no data",
        "  ": "names no data",
        "ftp://host/a": "ftp:// is not supported",
        "s3://": "names no bucket",
        "s3:///a": "names no bucket",
        "file://data/a": "three slashes",
        "pipe:curl x": "runs no commands",
    }.items(),
)
def test_an_address_that_cannot_work_is_refused_in_one_line(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_url(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "abfs"])
def test_a_secret_in_an_address_is_refused_and_not_shown(scheme: str) -> None:
    with pytest.raises(ValueError, match="storage options") as caught:
        parse_url(f"{scheme}://key:{SECRET}@bucket/a")
    assert SECRET not in str(caught.value)


def test_a_path_and_a_file_url_open_the_same_store(tmp_path: Path) -> None:
    assert open_store(os.fspath(tmp_path)) == open_store(tmp_path.as_uri()) == LocalStore(str(tmp_path))


def test_a_local_folder_takes_no_options(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="region") as caught:
        open_store(str(tmp_path), {"region": SECRET})
    assert SECRET not in str(caught.value)
