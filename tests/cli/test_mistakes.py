"""What people mistype on their first day is answered in one line that shows the way out."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2.cli.root import cli
from corgi2.dataset.patterns import expand
from tests.cli.conftest import Run
from tests.shards import tar_of

TAKE_SRC = [name for name, command in cli.commands.items() if any(param.name == "src" for param in command.params)]


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("train-000", "train-001", "train-002", "val-000"):
        (folder / f"{name}.tar").write_bytes(tar_of([(f"{n}.cls", b"%d" % n) for n in range(9)]))
    return folder


def _line(error: str) -> str:
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert "unforeseen" not in error
    return error.strip()


@pytest.mark.parametrize("command", TAKE_SRC)
def test_a_pattern_that_the_shell_has_expanded_is_shown_in_quotes(command: str, run: Run, splits: Path) -> None:
    words = [f"{splits}/train-{number:03d}.tar" for number in range(4)]
    code, _, error = run(command, *words, "--json")
    assert code == 2
    assert "quote it" in error
    code, _, error = run(command, *words)
    shown = shlex.split(_line(error).partition("quote it: ")[2])
    assert shown[:2] == ["corgi2", command]
    assert [*expand(shown[2])] == words


@given(st.integers(2, 30), st.booleans())
def test_the_shown_command_keeps_everything_else_that_was_typed(count: int, has_target: bool) -> None:
    words = [f"data/train-{number:06d}.tar" for number in range(count + 1)]
    typed = ["shuffle", *words, *(["out"] if has_target else []), "--buffer", "8 GB", "--seed", "3"]
    with pytest.raises(Exception, match="quote it") as caught:
        cli(typed, prog_name="corgi2", standalone_mode=False)
    shown = shlex.split(str(caught.value).partition("quote it: ")[2].partition("; ")[0])
    pattern = f"data/train-{{000000..{count:06d}}}.tar"
    assert shown == ["corgi2", "shuffle", pattern, *(["out"] if has_target else []), *typed[-4:]]


def test_words_that_are_no_shards_stay_unexpected(run: Run) -> None:
    assert "unexpected extra argument" in _line(run("inspect", "a", "b", "c")[2])


def test_the_command_that_names_one_split_is_whole_and_runs(run: Run, splits: Path, tmp_path: Path) -> None:
    code, _, error = run("shuffle", splits, tmp_path / "out", "--buffer", "8 GB", "--seed", "3", "--buffer-blocks", "2")
    assert code == 3
    shown = shlex.split(_line(error).partition("for example: ")[2])
    assert shown[:2] == ["corgi2", "shuffle"]
    assert shown[3:] == [str(tmp_path / "out"), "--buffer", "8 GB", "--seed", "3", "--buffer-blocks", "2"]
    assert run(*shown[1:])[0] == 0
    assert run("verify", shown[2], tmp_path / "out")[0] == 0


def test_a_target_that_was_named_like_the_source_stays_in_the_command(run: Run, splits: Path) -> None:
    shown = shlex.split(_line(run("shuffle", splits, splits)[2]).partition("for example: ")[2])
    assert shown[2] != shown[3] == str(splits)


def test_a_command_with_secrets_is_shown_without_them(run: Run, splits: Path) -> None:
    error = run("shuffle", splits, "memory://x/y", "--dst-option", "secret_access_key=abcdef")[2]
    assert "abcdef" not in error


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc here")
@pytest.mark.parametrize("target", ["/proc", "/proc/x", "/sys/x/y", "/proc/self/fd/99"])
def test_a_target_where_the_kernel_shows_itself_is_refused_at_once(run: Run, splits: Path, target: str) -> None:
    code, _, error = run("shuffle", f"{splits}/train-*.tar", target, "--buffer", "1GB")
    assert code == 3
    assert "name another folder" in _line(error)


@pytest.mark.parametrize("target", ["/dev/null", "/dev/null/x"])
def test_a_device_is_no_folder(run: Run, splits: Path, target: str) -> None:
    code, _, error = run("shuffle", f"{splits}/train-*.tar", target, "--buffer", "1GB")
    assert code == 3
    assert "is a file, not a folder; name another one to write to" in _line(error)


def test_a_read_only_file_system_is_named_as_such(
    run: Run,
    splits: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Status:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda _: Status)
    code, _, error = run("shuffle", f"{splits}/train-*.tar", tmp_path / "out", "--buffer", "1GB")
    assert code == 3
    assert "read-only file system; name a folder in another one" in _line(error)


@pytest.mark.parametrize("command", ["inspect", "plan"])
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_read(
    command: str, run: Run, tmp_path: Path
) -> None:
    code, out, error = run(command, tmp_path / "none", "--label", "cls", "--html", tmp_path / "no" / "page.html")
    assert (code, out) == (2, "")
    assert f"there is no folder {tmp_path / 'no'} to write to; make it first" in _line(error)


def test_an_empty_folder_is_answered_with_what_a_shard_is_called(run: Run, tmp_path: Path) -> None:
    assert "is empty); name a folder or glob with files that end in one of .tar " in _line(run("inspect", tmp_path)[2])


BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "ray", "sklearn", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("from corgi2.torch import CorgiDataset", "torch"),
        ("import corgi2; corgi2.shuffle(sys.argv[1], sys.argv[1] + '-out', buffer='1GB', engine='ray')", "ray"),
        ("from corgi2.demo import run; run(sys.argv[1] + '-demo')", "demo"),
        ("import experiments.results", "experiments"),
    ],
)
def test_a_missing_package_is_named_with_the_way_to_install_it(program: str, extra: str, splits: Path) -> None:
    (splits / "val-000.tar").unlink()
    code = f"{BLOCK}\ntry:\n    {program}\nexcept ImportError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code, str(splits)], capture_output=True, text=True, check=True)
    assert f"which is not installed; pip install 'corgi2[{extra}]'" in done.stdout
    assert not Path(f"{splits}-out").exists()


def test_an_error_in_our_own_modules_is_not_called_a_missing_package() -> None:
    code = (
        "from corgi2.extras import needing\ntry:\n    with needing('torch', 'it'):\n        import corgi2.nothing\n"
        "except ModuleNotFoundError as error:\n    print(type(error).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ModuleNotFoundError\n"
