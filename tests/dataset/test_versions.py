"""What another version of corgi2 has left in a folder gets one line with the way out, from every command, and stays."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import corgi2
from corgi2.dataset.sealing import VERSION
from corgi2.errors import SourceError
from tests.sources import write_source

COMMANDS: dict[str, Callable[[Path, Path], object]] = {
    "inspect": lambda _, out: corgi2.inspect(out),
    "plan": lambda _, out: corgi2.plan(out, buffer="10MB"),
    "shuffle": lambda src, out: corgi2.shuffle(src, out, buffer="10MB"),
    "shuffle in place": lambda _, out: corgi2.shuffle(out, buffer="10MB", in_place=True),
    "restart": lambda src, out: corgi2.shuffle(src, out, buffer="10MB", restart=True),
    "load": lambda _, out: list(corgi2.Loader(out, buffer="10MB")),
}


def _age(folder: Path) -> None:
    """Every file as another version would have sealed it."""
    for path in (folder / ".corgi2").rglob("*"):
        if path.is_file():
            path.write_bytes(re.sub(rb"^corgi2 \d+ ", b"corgi2 %d " % (VERSION + 1), path.read_bytes()))


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("is_done", [True, False], ids=["finished", "unfinished"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_another_version_gets_one_line_and_stays(
    command: str, is_done: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source, out = tmp_path / "in", tmp_path / "out"
    write_source(source, ".tar", [20] * 6)
    corgi2.shuffle(source, out, buffer="10MB")
    if not is_done:
        (out / ".corgi2" / "c0" / "done").unlink()
        (out / ".corgi2" / "index").unlink()
    _age(out)
    before = _files(out)
    with pytest.raises(SourceError) as caught:
        COMMANDS[command](source, out)
    assert "\n" not in str(caught.value)
    reasons = f"version {VERSION + 1}", "not finished", "holds a finished shuffle"
    assert any(reason in str(caught.value) for reason in reasons)
    assert caught.value.hint or "corgi2 index" in str(caught.value) or "delete it" in str(caught.value)
    assert _files(out) == before


def test_verify_says_no_where_only_another_version_could_tell(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 6)
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", buffer="10MB")
    _age(tmp_path / "out")
    audit = corgi2.verify(tmp_path / "out")
    assert not audit.same
    assert any(f"version {VERSION + 1}" in problem for problem in audit.problems)
    assert corgi2.verify(tmp_path / "in", tmp_path / "out").same  # which asks the records alone


def test_an_index_of_another_version_is_made_anew_by_index_and_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_source(tmp_path / "in", ".tar", [20] * 6)
    corgi2.index(tmp_path / "in")
    _age(tmp_path / "in")
    with pytest.raises(SourceError, match="run corgi2 index"):
        corgi2.inspect(tmp_path / "in")
    assert corgi2.index(tmp_path / "in").records == 120
    assert corgi2.inspect(tmp_path / "in").indexed
    (tmp_path / "in" / ".corgi2" / "index").unlink()
    corgi2.index(tmp_path / "in", cache=True)
    (cached,) = (tmp_path / "cache").rglob("index")
    cached.write_bytes(cached.read_bytes().replace(b"corgi2 %d" % VERSION, b"corgi2 %d" % (VERSION + 1), 1))
    assert not corgi2.inspect(tmp_path / "in").indexed
