"""What a script sees of the real command: exit codes, errors as JSON, signals, and ways out that are ways out."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from corgi2.errors import SourceError, StoreError
from corgi2.offline.run import shuffle
from corgi2.proof.comparison import verify
from corgi2.stores.local import LocalStore
from tests.sources import write_source

CORGI2 = [sys.executable, "-m", "corgi2"]
KEYS = {"error", "kind", "shard", "hint"}
KINDS = {"usage", "source", "shard", "store", "space", "memory", "interrupted"}


def _corgi2(*words: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [*CORGI2, *(word if isinstance(word, bytes) else str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=250, **options)


def _damage(path: Path) -> None:
    """Half of a shard is missing, which only reading it tells."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("data-*")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sound shards in ``in``, some that are not in ``bad`` and ``worse``, fewer records in ``less``."""
    for name in ("in", "bad", "worse"):
        write_source(tmp_path / name, ".tar", [20] * 4)
    _damage(tmp_path / "bad" / "data-0001.tar")
    _damage(tmp_path / "worse" / "data-0001.tar")
    _damage(tmp_path / "worse" / "data-0002.tar")
    write_source(tmp_path / "less", ".tar", [20] * 3)
    (tmp_path / "file").touch()
    (tmp_path / "folder.tar").mkdir()
    write_source(tmp_path / "packed", ".jsonl.gz", [2000] * 2)
    (tmp_path / "odd").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "odd") + b"/x\xff.tar")).write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    return tmp_path


S3 = ["s3://b/x", "--src-option", "access_key_id=a", "--src-option", "secret_access_key=b", "--src-option", "retries=0"]
HOLDS = {"inspect": ["inspect", "in"], "verify": ["verify", "in", "in"], "help": ["--help"], "version": ["--version"]}
NO = {"inspect": ["inspect", "bad"], "several": ["inspect", "worse"], "verify": ["verify", "in", "less"]}
WRONG: dict[str, tuple[str, list[Any]]] = {
    "no such command": ("usage", ["frobnicate"]),
    "no such option": ("usage", ["index", "in", "--frobnicate"]),
    "a missing argument": ("usage", ["inspect"]),
    "a size that is none": ("usage", ["shuffle", "in", "out", "--buffer", "12 parsecs"]),
    "a number that is none": ("usage", ["shuffle", "in", "out", "--seed", "x"]),
    "too many passes": ("usage", ["shuffle", "in", "out", "--passes", "99"]),
    "options that exclude each other": ("usage", ["shuffle", "in", "--in-place", "--skip-bad"]),
    "no target": ("usage", ["shuffle", "in"]),
    "an address of no store": ("usage", ["inspect", "ftp://x/y"]),
    "a range that is none": ("usage", ["inspect", "in/data-{a}.tar"]),
    "bytes that are no UTF-8": ("usage", ["inspect", b"in\xff"]),
    "bytes as a target": ("usage", ["shuffle", "in", b"out\xff"]),
    "an option of no store": ("usage", ["inspect", "in", "--src-option", "retries=8"]),
    "an option without a value": ("usage", ["inspect", "s3://b/x", "--src-option", "endpoint"]),
    "an endpoint that is none": ("usage", ["inspect", *S3, "--src-option", "endpoint=127.0.0.1:9"]),
    "a number of seconds that is none": ("usage", ["inspect", *S3, "--src-option", "timeout=-1"]),
    "a folder for a page": ("usage", ["inspect", "in", "--label", "txt", "--html", "in"]),
    "an option that no store knows": ("usage", ["inspect", *S3, "--src-option", "frobnicate=1"]),
    "an option that the target's store does not know": (
        "usage",
        ["shuffle", "in", "s3://b/x", "--dst-option", "regoin=1"],
    ),
    "a number of retries that is none": ("usage", ["inspect", "s3://b/x", "--src-option", "retries=abc"]),
    "a flag that is none": ("usage", ["inspect", *S3, "--src-option", "anonymous=perhaps"]),
    "a flag of obstore that is none": ("usage", ["inspect", *S3, "--src-option", "virtual_hosted_style_request=x"]),
    "an option of another store": ("usage", ["inspect", "gs://b/x", "--src-option", "region=x"]),
    "a server that is not there": ("store", ["inspect", *S3, "--src-option", "endpoint=http://127.0.0.1:1"]),
    "a file as a target": ("store", ["shuffle", "in", "file", "--buffer", "1MB"]),
    "a page in no folder": ("usage", ["inspect", "in", "--label", "txt", "--html", "no/such/page.html"]),
    "a name that is too long": ("store", ["shuffle", "in", "x" * 300]),
    "no such folder": ("source", ["inspect", "nowhere"]),
    "an empty folder": ("source", ["index", "folder.tar"]),
    "a name that is no UTF-8": ("store", ["inspect", "odd"]),
    "no such prices": ("usage", ["plan", "in", "--prices", "folder.tar"]),
    "a target around the source": ("source", ["shuffle", "in", "."]),
    "nothing to verify by": ("source", ["verify", "in"]),
    "a damaged shard to shuffle": ("shard", ["shuffle", "bad", "out"]),
    "a damaged shard to index": ("shard", ["index", "bad"]),
    "damaged shards to index": ("shard", ["index", "worse"]),
    "a damaged shard to verify": ("shard", ["verify", "bad", "in"]),
    "a buffer that is too small": ("memory", ["shuffle", "packed", "out", "--buffer", "20KB"]),
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("code", "words"), [*((0, words) for words in HOLDS.values()), *((1, w) for w in NO.values())])
def test_0_is_yes_and_1_is_no(code: int, words: list[str]) -> None:
    done = _corgi2(*words)
    assert done.returncode == code, done.stderr
    assert done.stdout


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("kind", "words"), WRONG.values(), ids=WRONG)
def test_2_is_wrong_usage_3_is_that_it_could_not_be_done_and_each_is_a_line_or_an_object(
    kind: str, words: list[Any]
) -> None:
    done = _corgi2(*words)
    assert done.returncode == (2 if kind == "usage" else 3), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == (3 if "worse" in words else 1)  # a shard each, and the way out
    assert all(line.startswith("corgi2: ") for line in lines)
    again = _corgi2(*words, "--json")
    assert (again.returncode, again.stdout if kind != "store" else "") == (done.returncode, "")
    (line,) = again.stderr.splitlines()
    found = json.loads(line)
    assert found.keys() >= KEYS
    assert found["kind"] == kind
    assert kind in KINDS
    assert (found["shard"] is not None) == (kind == "shard")
    assert found["hint"] is None or found["hint"] in done.stderr
    assert _untimed(found["error"].splitlines()[0]) in _untimed(done.stderr)


def _untimed(text: str) -> str:
    """Without how long a request took."""
    return re.sub(r" in [\d.]+\S?s ", " ", text)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("command", "code"), [("inspect", 1), ("index", 3)])
def test_several_damaged_shards_are_one_object_that_names_all(command: str, code: int, here: Path) -> None:
    done = _corgi2(command, "worse", "--json")
    assert done.returncode == code
    found = json.loads(done.stderr)
    names = [f"{here}/worse/data-000{number}.tar" for number in (1, 2)]
    assert (found["shard"], found["shards"]) == (names[0], names)
    assert [line.partition(": at byte ")[0] for line in found["error"].splitlines()] == names
    assert done.stdout == "" if command == "index" else len(json.loads(done.stdout)["damage"]) == 2


@pytest.mark.usefixtures("here")
def test_no_room_is_of_a_kind_of_its_own() -> None:
    code = (
        "import sys; from corgi2.stores.local import LocalStore; LocalStore.free_bytes = lambda _: 9; sys.argv[0] = 'x'"
    )
    command = [
        sys.executable,
        "-c",
        f"{code}; from corgi2.cli.program import main; main()",
        "shuffle",
        "in",
        "out",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stderr)["kind"]) == (3, "space")
    assert "--in-place" in json.loads(done.stderr)["hint"]


@pytest.mark.usefixtures("here")
def test_an_unfinished_target_says_how_to_go_on() -> None:
    _corgi2("shuffle", "bad", "out", "--buffer-blocks", "2")
    for words, way in ((["inspect", "out"], "run its command again"), (["shuffle", "bad", "out"], "--restart")):
        done = _corgi2(*words, "--json")
        assert (done.returncode, json.loads(done.stderr)["kind"]) == (3, "source")
        assert way in json.loads(done.stderr)["hint"]


def test_what_nobody_foresaw_is_no_answer_and_one_line(here: Path) -> None:
    code = "import corgi2.quality as q; q.inspect = lambda *_, **__: 1 / 0; from corgi2.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "inspect", str(here)], capture_output=True, text=True)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "unforeseen ZeroDivisionError: division by zero (<string>:1); please report this" in line


@pytest.mark.parametrize(("where", "said"), [("/dev/full", 1), ("pipe", 0)])
def test_an_output_that_takes_nothing_is_said_once_and_no_answer(where: str, said: int, here: Path) -> None:
    if where == "pipe":
        read, write = os.pipe()
        os.close(read)
    else:
        write = os.open(where, os.O_WRONLY)
    done = subprocess.run([*CORGI2, "inspect", "in"], stdout=write, stderr=subprocess.PIPE, text=True, cwd=here)
    os.close(write)
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == said


def test_without_an_output_the_exit_code_still_answers(here: Path) -> None:
    for words, code in (("inspect in", 0), ("inspect bad", 1), ("verify in less", 1), ("inspect nowhere", 3)):
        for closed in (">&-", ">&- 2>&-", "2>/dev/full"):
            command = f"{sys.executable} -m corgi2 {words} {closed}"
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=here)
            assert done.returncode == (3 if "full" in closed and code == 1 and "bad" in words else code), closed
            assert "Traceback" not in done.stderr


_SLOW = """
import os, sys, time
from corgi2.stores.local import LocalStore

real = LocalStore.readinto
def slow(self, entry, start, buffer):
    has_begun = "--in-place" not in sys.argv or os.path.exists("in/.corgi2")  # before that, shards are glanced at
    if has_begun and entry.path.endswith((".tar", ".parquet")):
        print("reading", flush=True)
        time.sleep(1 if "shuffle" in sys.argv else 60)
    real(self, entry, start, buffer)
LocalStore.readinto = slow
from corgi2.cli.program import main
main()
"""
STOPPED = {
    "inspect": ["inspect", "in"],
    "index": ["index", "in"],
    "verify": ["verify", "in", "less"],
    "verify one": ["verify", "mixed"],
    "shuffle": ["shuffle", "in", "out", "--buffer-blocks", "2"],
    "in place": ["shuffle", "in", "--in-place", "--buffer-blocks", "2"],
}


def _heed() -> None:
    """Even where these tests run in the background of a shell, where all are told not to."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("words", STOPPED.values(), ids=STOPPED)
def test_stopped_by_a_signal_it_ends_with_one_line_and_the_signals_own_code(
    words: list[str], number: signal.Signals, here: Path
) -> None:
    if "mixed" in words:
        shuffle(here / "in", here / "mixed")
    for flags in ([], ["--json"]):
        command = [sys.executable, "-c", _SLOW, *words, *flags]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=_heed)
        assert process.stdout is not None
        while "reading" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(number)
        _, said = process.communicate(timeout=50)
        assert process.returncode == 128 + number
        (line,) = said.splitlines()
        way = f"To resume: corgi2 {' '.join([*words, *flags])}" if "shuffle" in words else "run the same command again"
        if flags:
            found = json.loads(line)
            assert (found["kind"], found["hint"]) == ("interrupted", way)
        else:
            assert line.startswith("corgi2: ")
            assert line.endswith(way)
    if "shuffle" in words:
        assert _corgi2(*words).returncode == 0
        assert verify(here / ("out" if "out" in words else "in")).same


def test_a_signal_that_is_to_be_ignored_is_ignored(here: Path) -> None:
    command = [sys.executable, "-c", _SLOW, "shuffle", "in", "out"]

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=ignore, cwd=here)
    assert process.stdout is not None
    while "reading" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


WAYS = [(".tar", 1), (".jsonl", 2), (".tar.gz", 1), (".parquet", 1), (".parquet", 2)]


def _damaged(folder: Path, suffix: str, bad: Sequence[int]) -> None:
    """Shards of which some are damaged where only reading finds it; of Parquet so many that a sample does not."""
    write_source(folder, suffix, [20] * (24 if suffix == ".parquet" else 6))
    for number in bad:
        path = folder / f"data-{number:04d}{suffix}"
        if suffix != ".parquet":
            _damage(path)
            continue
        column = pq.read_metadata(path).row_group(1).column(0)
        start = column.dictionary_page_offset or column.data_page_offset
        data = bytearray(path.read_bytes())
        data[start : start + 20] = b"\xff" * 20
        path.write_bytes(data)


@pytest.mark.parametrize(("suffix", "passes"), WAYS)
@pytest.mark.parametrize("bad", [(0,), (3, 5)], ids=str)
def test_a_damaged_shard_names_the_way_past_it_and_the_same_command_with_it_goes_on(
    bad: tuple[int, ...], suffix: str, passes: int, tmp_path: Path
) -> None:
    """To what a run gives that had it from the start."""
    _damaged(tmp_path / "in", suffix, bad)
    words = ["shuffle", tmp_path / "in", tmp_path / "out", "--buffer-blocks", "2", "--passes", passes]
    done = _corgi2(*words, "--json")
    assert done.returncode == 3
    found = json.loads(done.stderr.splitlines()[-1])
    assert found["shard"] in [f"{tmp_path}/in/data-{number:04d}{suffix}" for number in bad]
    assert "the same command with --skip-bad" in found["hint"]
    done = _corgi2(*words, "--skip-bad", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["skipped"]) == len(bad)
    whole = _corgi2("shuffle", tmp_path / "in", tmp_path / "whole", *words[3:], "--skip-bad")
    assert whole.returncode == 0, whole.stderr
    assert _shards(tmp_path / "out") == _shards(tmp_path / "whole")
    assert verify(tmp_path / "out").same
    assert "complete already" in _corgi2(*words, "--skip-bad").stdout
    refused = _corgi2(*words)
    assert refused.returncode == 3
    assert "--skip-bad" in refused.stderr


@pytest.mark.parametrize("bad", range(6))
def test_groups_that_were_done_without_skip_bad_are_kept_with_it(bad: int, tmp_path: Path) -> None:
    _damaged(tmp_path / "in", ".jsonl", [bad])
    with pytest.raises(Exception, match=f"data-000{bad}"):
        shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2)
    done = len(list((tmp_path / "out" / ".corgi2" / "c0").glob("pass-1/groups/[0-9]*")))
    report = shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2, skip_bad=True)
    assert (report.resumed_groups, report.records) == (done, 100)


@pytest.mark.parametrize(("suffix", "passes"), [(".jsonl", 1), (".jsonl", 2), (".parquet", 1)])
def test_going_on_with_skip_bad_may_be_stopped_at_any_call_of_a_store(
    suffix: str, passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _damaged(tmp_path / "in", suffix, [2])
    monkeypatch.setattr(os, "fsync", lambda _: None)
    options: dict[str, Any] = {"buffer_blocks": 2, "passes": passes, "workers": 1}
    shuffle(tmp_path / "in", tmp_path / "whole", skip_bad=True, **options)
    with pytest.raises(Exception, match="data-0002"):
        shuffle(tmp_path / "in", tmp_path / "begun", **options)
    expected, calls, out = _shards(tmp_path / "whole"), 0, tmp_path / "out"
    while True:
        shutil.copytree(tmp_path / "begun", out)
        with monkeypatch.context() as patch:
            left = _dying(patch, calls)
            try:
                shuffle(tmp_path / "in", out, skip_bad=True, **options)
            except StoreError:
                shuffle(tmp_path / "in", out, skip_bad=True, **options)
        assert _shards(out) == expected
        shutil.rmtree(out)
        if left[0] >= 0:
            break
        calls += 1
    assert calls > 5


def _dying(patch: pytest.MonkeyPatch, calls: int) -> list[int]:
    """A store that fails once, when it has written and deleted so often."""
    left = [calls]
    for name in ("publish", "create", "delete"):
        real = getattr(LocalStore, name)

        def struck(self: LocalStore, *arguments: Any, _real: Any = real) -> Any:
            left[0] -= 1
            if left[0] == -1:
                raise StoreError("struck")
            return _real(self, *arguments)

        patch.setattr(LocalStore, name, struck)
    return left


def test_runs_with_and_without_skip_bad_at_once_end_like_one_with_it(tmp_path: Path) -> None:
    _damaged(tmp_path / "in", ".jsonl", [2])
    shuffle(tmp_path / "in", tmp_path / "whole", buffer_blocks=2, skip_bad=True)
    words = [*CORGI2, "shuffle", str(tmp_path / "in"), str(tmp_path / "out"), "--buffer-blocks", "2"]
    _corgi2(*words[3:])
    runs = [subprocess.Popen([*words, *more], stderr=subprocess.PIPE, text=True) for more in ([], ["--skip-bad"])]
    said = [run.communicate(timeout=250)[1] for run in runs]
    assert [run.returncode for run in runs] == [3, 0], said
    assert "--skip-bad" in said[0]
    assert _shards(tmp_path / "out") == _shards(tmp_path / "whole")


def test_other_blocks_are_made_anew_by_a_run_of_its_own_not_by_a_dry_one_nor_beside_another(tmp_path: Path) -> None:
    _damaged(tmp_path / "in", ".parquet", [2])
    with pytest.raises(Exception, match="data-0002"):
        shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2)
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    dry = _corgi2("shuffle", tmp_path / "in", tmp_path / "out", "--buffer-blocks", "2", "--skip-bad", "--dry-run")
    assert (dry.returncode, "is made anew" in dry.stderr) == (0, True)
    process = subprocess.Popen([sys.executable, "-c", _LOCK, str(tmp_path / "out")], stdout=subprocess.PIPE, stdin=-1)
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(SourceError, match="another run is at work there") as caught:
        shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2, skip_bad=True)
    assert "end it" in (caught.value.hint or "")
    process.communicate(b"\n")
    assert before == {path: path.read_bytes() for path in before}
    assert shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2, skip_bad=True).records == 460


_LOCK = """
import sys
from corgi2.offline.journal import Journal
from corgi2.stores.opening import open_store
with Journal(open_store(sys.argv[1]), 0).lock():
    print("locked", flush=True)
    sys.stdin.readline()
"""


def test_in_place_the_way_past_a_damaged_shard_is_a_backup(here: Path) -> None:
    done = _corgi2("shuffle", "bad", "--in-place", "--buffer-blocks", "2")
    assert done.returncode == 3
    assert "restore it from a backup, and give the same command again" in done.stderr
    assert "--skip-bad" not in done.stderr
    shutil.copy(here / "in" / "data-0001.tar", here / "bad")
    assert _corgi2("shuffle", "bad", "--in-place", "--buffer-blocks", "2").returncode == 0


def test_help_and_docs_tell_the_exit_codes_and_the_kinds() -> None:
    shown, page = _corgi2("--help").stdout, (Path(__file__).parents[2] / "docs/commands.md").read_text()
    for code in (0, 1, 2, 3, 130, 143):
        assert f" {code}  " in shown or f" {code}," in shown
        assert f"| {code} |" in page
    assert all(f"`{kind}`" in page for kind in {*KINDS, "bug", "other"})
