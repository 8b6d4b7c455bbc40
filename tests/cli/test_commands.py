"""The command line: what a person sees. Bad input is one clear line that names the shard, and never a traceback."""

import gzip
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corgi2 import __version__
from corgi2.cli.words import command_line
from tests.cli.conftest import Run
from tests.shards import parquet_of, tar_of, tar_of_infos


def _good(folder: Path) -> None:
    for shard in range(3):
        (folder / f"a-{shard}.tar").write_bytes(tar_of([(f"{n}.txt", b"x" * 100) for n in range(20)]))


def test_version_and_help_teach(run: Run) -> None:
    assert run("--version") == (0, f"corgi2, version {__version__}\n", "")
    code, out, _ = run("--help")
    assert code == 0
    assert all(word in out for word in ("inspect", "index", "corgi2 inspect", "powers of 1000"))
    assert "brace range" in run("index", "--help")[1]


def test_inspect_prints_the_promised_keys(run: Run, tmp_path: Path) -> None:
    _good(tmp_path)
    (tmp_path / "README.md").write_text("hello")
    code, out, err = run("inspect", tmp_path, "--json")
    described = json.loads(out)
    assert (code, err) == (0, "")
    expected = {"format": "tar", "shards": 3, "blocks": 3, "records": 60, "bytes": 3 * 30720, "others": ["README.md"]}
    assert {key: described[key] for key in expected} == expected
    assert "README.md" in run("inspect", tmp_path)[1]


def test_index_is_kept_and_used(run: Run, tmp_path: Path) -> None:
    _good(tmp_path)
    assert run("index", tmp_path, "--block-size", "10KB")[0] == 0
    described = json.loads(run("inspect", tmp_path, "--json")[1])
    assert described["indexed"]
    assert described["blocks"] == 3 * 3


def test_index_says_what_it_left_alone(run: Run, tmp_path: Path) -> None:
    _good(tmp_path)
    (tmp_path / "labels.txt").write_text("cat")
    assert "1 file is not a shard and is left where it is: labels.txt" in run("index", tmp_path)[1]


def _tar(*names: str) -> bytes:
    return tar_of([(name, b"x" * 600) for name in names])


def _lying_tar() -> bytes:
    info = tarfile.TarInfo("a.bin")
    info.size = 1 << 62
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(4096)


def _latin_tar() -> bytes:
    info = tarfile.TarInfo("caf\udce9.jpg")
    return tar_of_infos([(info, b"x")], tarfile.GNU_FORMAT)


def _parquet() -> bytes:
    return parquet_of(pa.table({"a": range(1000), "s": ["x"] * 1000}))


def _lying_parquet() -> bytes:
    data = bytearray(_parquet())
    data[-8:-4] = b"\xff\xff\xff\x7f"
    return bytes(data)


LINES = b'{"a": 1}\n{"a": 2}\n'
BAD = {
    "truncated tar": ("x.tar", _tar("a.x", "b.x", "c.x")[:2000], "cut short|claims"),
    "tar cut at a member": ("x.tar", _tar("a.x", "b.x")[:1536], "without its end mark"),
    "tar without samples": ("x.tar", bytes(10240), "holds no record"),
    "zero-length tar": ("x.tar", b"", "empty .zero bytes."),
    "text as tar": ("x.tar", b"hello " * 1000, "not a tar archive"),
    "gzip as tar": ("x.tar", gzip.compress(_tar("a.x")), "not a tar archive|cut short"),
    "tar that claims 2^62 bytes": ("x.tar", _lying_tar(), "member claims 4611686018427387904 bytes"),
    "tar with members out of order": ("x.tar", _tar("a.jpg", "b.jpg", "a.cls", "b.cls"), "do not lie together"),
    "tar with a Latin-1 name": ("x.tar", _latin_tar(), "not UTF-8"),
    "two tars in one file": ("x.tar", _tar("a.x") + _tar("b.x"), "data after the end"),
    "tar with a damaged header": ("x.tar", _tar("a.x").replace(b"0000644", b"0000645"), "checksum is wrong"),
    "truncated tar.gz": ("x.tar.gz", gzip.compress(_tar("a.x", "b.x"), mtime=0)[:-20], "gzip stream is damaged"),
    "tar.gz that is none": ("x.tar.gz", b"hello" * 50, "gzip stream is damaged"),
    "zero-length tar.gz": ("x.tar.gz", b"", "empty .zero bytes."),
    "tar.zst that is none": ("x.tar.zst", b"hello" * 50, "zstd stream is damaged"),
    "truncated parquet": ("x.parquet", _parquet()[:-500], "not a Parquet file, or cut short"),
    "zero-length parquet": ("x.parquet", b"", "0 bytes are not a Parquet file"),
    "parquet without rows": ("x.parquet", parquet_of(pa.table({"a": pa.array([], pa.int8())})), "holds no record"),
    "text as parquet": ("x.parquet", b"hello " * 1000, "not a Parquet file"),
    "parquet with a lying footer": ("x.parquet", _lying_parquet(), "footer claims 2147483647 bytes"),
    "truncated jsonl": ("x.jsonl", LINES[:-6], "cut short"),
    "zero-length jsonl": ("x.jsonl", b"", "holds no record"),
    "blank jsonl": ("x.jsonl", b"\n \n", "holds no record"),
    "binary as jsonl": ("x.jsonl", bytes(range(256)), "no JSON value|cut short"),
    "truncated jsonl.gz": ("x.jsonl.gz", gzip.compress(LINES, mtime=0)[:-9], "gzip stream is damaged"),
}


@pytest.mark.parametrize("command", ["inspect", "index"])
@pytest.mark.parametrize(("name", "data", "problem"), BAD.values(), ids=BAD)
def test_a_bad_shard_is_one_clear_line(
    run: Run, tmp_path: Path, command: str, name: str, data: bytes, problem: str
) -> None:
    (tmp_path / name).write_bytes(data)
    code, _, err = run(command, tmp_path)
    assert code == {"inspect": 1, "index": 3}[command]
    (line,) = err.splitlines()
    assert line.startswith(f"corgi2: {tmp_path / name}: at byte ")
    assert re.search(problem, line), line
    assert not (tmp_path / ".corgi2").exists()


def test_a_bad_shard_among_good_ones_is_counted_and_named(run: Run, tmp_path: Path) -> None:
    _good(tmp_path)
    (tmp_path / "a-1.tar").write_bytes(b"junk")
    code, out, err = run("inspect", tmp_path, "--json")
    assert code == 1
    assert json.loads(out)["records"] == 40
    assert len(json.loads(out)["damage"]) == len(err.splitlines()) == 1


def test_another_schema_is_named(run: Run, tmp_path: Path) -> None:
    for shard, name in enumerate(["a", "a", "b"]):
        pq.write_table(pa.table({name: [1]}), tmp_path / f"{shard}.parquet")
    code, _, err = run("inspect", tmp_path)
    assert code == 1
    assert "2.parquet" in err
    assert "another schema than 0.parquet: 'a: int64' is missing, 'b: int64' is extra;" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["inspect", "no/such/folder"], 3, "there is no such file or folder"),
        (["inspect", "ftp://x/y"], 2, "ftp:// is not supported"),
        (["inspect", "s3://"], 2, "names no bucket"),
        (["inspect", "s3://b/x", "--src-option", "endpoint=127.0.0.1:9"], 2, "endpoint must be a URL such as http://"),
        (["inspect", "pipe:cat x.tar"], 2, "runs no commands"),
        (["inspect"], 2, "Missing argument 'SRC'"),
        (["inspect", "x", "--src-option", "endpoint"], 2, "write KEY=VALUE"),
        (["index", "x", "--block-size", "12 parsecs"], 2, "not a size: '12 parsecs'"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_bad_arguments_are_clear(run: Run, arguments: list[str], code: int, words: str) -> None:
    got, out, err = run(*arguments)
    assert (got, out) == (code, "")
    assert words in err
    assert "Traceback" not in err


def test_without_a_terminal_nothing_but_the_result_is_printed(tmp_path: Path) -> None:
    _good(tmp_path)
    command = [sys.executable, "-m", "corgi2", "index", str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith("60 records in 3 blocks of 3 tar shards")


def test_the_demo_overwrites_only_its_own_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    pytest.importorskip("sklearn")
    code, _, err = run("demo", tmp_path / "mine")
    assert code == 3
    assert "is not a folder that the demo made" in err


def test_shuffle_and_verify_say_what_they_do(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    _good(tmp_path / "in")
    arguments = ("shuffle", tmp_path / "in", tmp_path / "out", "--buffer", "1MB")
    code, out, err = run(*arguments, "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith(
        "3 blocks, 92.2 KB; 1 pass, 1 group of n = 3; buffer 1.0 MB, memory up to 201 MB; about 3 reads and 3 "
        "writes of shards"
    )
    assert "; 92.2 KB more storage, " in out
    assert json.loads(run(*arguments, "--dry-run", "--json")[1])["n"] == 3
    assert not (tmp_path / "out").exists()
    code, out, _ = run(*arguments, "--json")
    report = json.loads(out)
    expected = {"records": 60, "blocks": 3, "groups": 1, "n": 3, "shards": 3}
    assert {key: report[key] for key in expected} == expected
    assert report.keys() >= {"bytes", "reads", "writes", "seconds"}
    assert "complete already" in run(*arguments)[1]
    assert run("verify", tmp_path / "in", tmp_path / "out")[:2] == (
        0,
        "the same 60 records, each equally often, in whatever order\n",
    )


def test_verify_denies_with_exit_code_1(run: Run, tmp_path: Path) -> None:
    for name, count in (("a", 20), ("b", 19)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.tar").write_bytes(tar_of([(f"{n}.txt", b"x") for n in range(count)]))
    code, out, _ = run("verify", tmp_path / "a", tmp_path / "b")
    assert code == 1
    assert out.splitlines() == [
        "NOT the same: 1 of 20 records is missing, 0 of 19 are extra",
        f"missing: record 19 of {tmp_path}/a/x.tar",
    ]


def test_index_keeps_what_it_found_beside_a_damaged_shard_and_repairs_a_damaged_index(run: Run, tmp_path: Path) -> None:
    _good(tmp_path)
    sound = (tmp_path / "a-1.tar").read_bytes()
    (tmp_path / "a-1.tar").write_bytes(b"junk")
    assert run("index", tmp_path)[0] == 3
    assert (tmp_path / ".corgi2" / "index").exists()
    assert not json.loads(run("inspect", tmp_path, "--json")[1])["indexed"]
    (tmp_path / "a-1.tar").write_bytes(sound)
    (tmp_path / ".corgi2" / "index").write_bytes(b"junk")
    assert run("index", tmp_path)[0] == 0
    assert json.loads(run("inspect", tmp_path, "--json")[1])["indexed"]


def test_a_pipe_is_no_shard(run: Run, tmp_path: Path) -> None:
    _good(tmp_path)
    os.mkfifo(tmp_path / "x.tar")
    code, _, err = run("inspect", tmp_path)
    assert code == 3
    assert "x.tar: is not a regular file" in err


def test_the_command_that_goes_on_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["shuffle", "a", "s3://b/c", "--restart", "--dst-option", "secret_access_key=HUSH", "--buffer", "2GB"]
    monkeypatch.setattr(sys, "argv", ["corgi2", *words, "--dst-option=session_token=HUSH", "--dst-option", "region=eu"])
    line = command_line()
    assert "HUSH" not in line
    assert line.startswith("corgi2 shuffle a s3://b/c --dst-option ")
    assert "secret_access_key=" in line
    assert line.endswith("region=eu")
    assert "--restart" not in line
