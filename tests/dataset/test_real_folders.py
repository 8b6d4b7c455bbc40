"""Folders as people have them: links, files that change while they are read, names and shards that are none."""

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import corgi2
from corgi2.dataset.scan import index_source
from corgi2.dataset.source import find_source, same_files
from corgi2.errors import ChangedError, Corgi2Error, DamageError, SourceError
from corgi2.offline.journal import Journal
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.run import run_shuffle, shuffle
from corgi2.offline.settings import Settings
from corgi2.quality import inspect
from corgi2.stores.local import LocalStore
from corgi2.stores.store import Entry, File, read_path
from tests.shards import parquet_of, tar_of
from tests.sources import content, write_source

FIRST = "data-0001.jsonl"


def _tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files below a folder, and how many names each has."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_nlink) for path in files}


def _to_outside(folder: Path) -> None:
    shutil.move(folder / FIRST, folder.parent / FIRST)
    (folder / FIRST).symlink_to(folder.parent / FIRST)


def _through_a_folder(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    shutil.move(folder / FIRST, folder.parent / "elsewhere" / FIRST)
    (folder / "more").symlink_to(folder.parent / "elsewhere")


def _in_a_subfolder(folder: Path) -> None:
    (folder / "sub").mkdir()
    os.link(folder / FIRST, folder / "sub" / "data-0099.jsonl")


def _chain(folder: Path) -> None:
    (folder / "data-0098.jsonl").symlink_to(FIRST)
    (folder / "data-0099.jsonl").symlink_to("data-0098.jsonl")


TWO_NAMES: dict[str, Callable[[Path], object]] = {
    "symbolic link": lambda folder: (folder / "data-0099.jsonl").symlink_to(FIRST),
    "link that is listed first": lambda folder: (folder / "a.jsonl").symlink_to(folder / FIRST),
    "chain of links": _chain,
    "hard link": lambda folder: os.link(folder / FIRST, folder / "data-0099.jsonl"),
    "hard link in a subfolder": _in_a_subfolder,
}
LINKED: dict[str, Callable[[Path], object]] = {
    "link from a name that is no shard's": lambda folder: (folder / "latest").symlink_to(FIRST),
    "link from a hidden name": lambda folder: (folder / ".latest.jsonl").symlink_to(FIRST),
    "link to a file outside": _to_outside,
    "link to a folder outside": _through_a_folder,
}


@pytest.mark.parametrize("link", (TWO_NAMES | LINKED).values(), ids=TWO_NAMES | LINKED)
def test_in_place_a_shard_that_links_lead_to_is_refused_before_anything_is_touched(
    link: Callable[[Path], object], tmp_path: Path
) -> None:
    write_source(tmp_path / "data", ".jsonl", [20] * 4)
    link(tmp_path / "data")
    before = _tree(tmp_path)
    for source in (tmp_path / "data", tmp_path / "data" / "**" / "*.jsonl"):
        with pytest.raises(SourceError, match="remove one of the names|put the file itself there"):
            shuffle(source, in_place=True, buffer_blocks=2)
    assert _tree(tmp_path) == before


@pytest.mark.parametrize("link", TWO_NAMES.values(), ids=TWO_NAMES)
def test_copying_a_file_under_two_names_of_one_data_set_is_refused_by_both_names(
    link: Callable[[Path], object], tmp_path: Path
) -> None:
    write_source(tmp_path / "data", ".jsonl", [20] * 4)
    link(tmp_path / "data")
    with pytest.raises(SourceError, match=r"\.jsonl: is the same file as .*\.jsonl, .* its records would count twice"):
        shuffle(tmp_path / "data", tmp_path / "out", buffer_blocks=2)
    assert not (tmp_path / "out").exists()


def test_copying_links_are_read_as_what_they_name(tmp_path: Path) -> None:
    """A cache of blobs, as hubs keep it: folders of links to files that have other names."""
    write_source(tmp_path / "blobs", ".jsonl", [20] * 4)
    (tmp_path / "snapshot").mkdir()
    for path in (tmp_path / "blobs").iterdir():
        (tmp_path / "snapshot" / path.name).symlink_to(path)
    (tmp_path / "snapshot" / "latest").symlink_to(FIRST)
    shuffle(tmp_path / "blobs", tmp_path / "one", buffer_blocks=2)
    shuffle(tmp_path / "snapshot", tmp_path / "two", buffer_blocks=2)
    assert [path.read_bytes() for path in sorted((tmp_path / "two").glob("*.jsonl"))] == [
        path.read_bytes() for path in sorted((tmp_path / "one").glob("*.jsonl"))
    ]


def test_files_are_one_only_where_all_that_is_known_of_them_is_the_same() -> None:
    """Some file systems number files twice, or not at all."""
    one = Entry("a.tar", 5, "x", File(1, 7, 100))
    others = [
        Entry("b.tar", 6, "x", File(1, 7, 100)),
        Entry("c.tar", 5, "y", File(1, 7, 100)),
        Entry("d.tar", 5, "x", File(1, 7, 101)),
        Entry("e.tar", 5, "x", File(2, 7, 100)),
        Entry("f.tar", 5, "x"),
    ]
    assert not list(same_files([one, *others]))
    same = Entry("z.tar", 5, "x", File(1, 7, 100, is_linked=True))
    assert list(same_files([one, *others, same])) == [(one, same)]
    assert not list(same_files([Entry(name, 5, "x", File(1, 0, 100)) for name in ("a.tar", "b.tar")]))


BIND_MOUNTS = {
    "the target is the source": ("mount --bind data other", "data", "other"),
    "the target lies in the source": ("mount --bind data other", "data", "other/out"),
    "the source is a part of the mount": ("mount --bind top other", "other/data", "top/data/out"),
    "the target lies in a part of the source": ("mkdir data/part; mount --bind data/part other", "data", "other/out"),
    "the source lies in the target": ("mount --bind top other", "top/data", "other"),
}


@pytest.mark.parametrize(("mount", "src", "dst"), BIND_MOUNTS.values(), ids=BIND_MOUNTS)
def test_a_bind_mount_is_no_way_into_the_source(mount: str, src: str, dst: str, tmp_path: Path) -> None:
    write_source(tmp_path / "data", ".jsonl", [20] * 4)
    shutil.copytree(tmp_path / "data", tmp_path / "top" / "data")
    (tmp_path / "other").mkdir()
    assert "lies in the source" in _mounted(tmp_path, mount, "shuffle", src, dst)


def test_a_bind_mount_of_a_shard_is_the_same_file(tmp_path: Path) -> None:
    write_source(tmp_path / "data", ".jsonl", [20] * 4)
    mount = f"touch data/data-0099.jsonl; mount --bind data/{FIRST} data/data-0099.jsonl"
    for command in (["shuffle", "data", "--in-place"], ["shuffle", "data", "out"], ["inspect", "data"]):
        assert f"data-0099.jsonl: is the same file as {FIRST}" in _mounted(tmp_path, mount, *command)
    assert not (tmp_path / "out").exists()


def _mounted(folder: Path, mount: str, *command: str) -> str:
    """What a command says where something is mounted, in a namespace that ends with it."""
    words = " ".join([sys.executable, "-m", "corgi2", *command])
    run = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f"{mount} || exit 77; exec {words}"]
    try:
        done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("nothing may be mounted here")
    assert done.returncode == 3, done.stdout
    return done.stderr


INTO_THE_SOURCE = {
    "a link in the source to the target": ("data/in", "away", "data", "away"),
    "a link in the source to a folder around the target": ("data/in", "away", "data", "away/a/b"),
    "a link in a folder of the source": ("data/sub/in", "away", "data", "away/out"),
    "a link to the source": ("link", "data", "data", "link/out"),
    "a link to a folder around the source": ("link", "top", "top/data", "link"),
    "two dots": ("link", "data", "data", "away/../data/out"),
    "slashes": ("link", "data", "data", "link//out///"),
    "a link of a link": ("link", "data", "link", "data/out"),
    "a glob that enters the link": ("data/in", "away", "data/**/*.jsonl", "away/out"),
}


@pytest.mark.parametrize(("link", "to", "src", "dst"), INTO_THE_SOURCE.values(), ids=INTO_THE_SOURCE)
def test_no_way_leads_a_target_into_the_source_or_around_it(
    link: str, to: str, src: str, dst: str, tmp_path: Path
) -> None:
    write_source(tmp_path / "data", ".jsonl", [20] * 4)
    shutil.copytree(tmp_path / "data", tmp_path / "top" / "data")
    (tmp_path / "away" / "a").mkdir(parents=True)
    (tmp_path / "data" / "sub").mkdir()
    (tmp_path / link).symlink_to(tmp_path / to)
    with pytest.raises(SourceError, match=r"lies in the source|is not empty"):
        plan_shuffle(f"{tmp_path}/{src}", f"{tmp_path}/{dst}", Settings(buffer_blocks=2))


def test_a_target_beside_the_source_is_taken_whatever_links_there_are(tmp_path: Path) -> None:
    write_source(tmp_path / "data", ".jsonl", [20] * 4)
    (tmp_path / "away").mkdir()
    (tmp_path / "data" / "in").symlink_to(tmp_path / "away")
    (tmp_path / "data-out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data-out")
    plan_shuffle(tmp_path / "data", tmp_path / "link", Settings(buffer_blocks=2))
    plan_shuffle(tmp_path / "data", tmp_path / "data-out" / "a" / "b", Settings(buffer_blocks=2))


def _other(path: Path) -> bytes:
    """Another content of the same size, as whole as the first."""
    return path.read_bytes().replace(b'{"t": "1 ', b'{"t": "7 ')


def _write(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(_other(path))


def _write_and_set_the_time_back(path: Path) -> None:
    status = path.stat()
    _write(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _replace(path: Path) -> None:
    data = _other(path)
    (path.parent / "new").write_bytes(data)
    (path.parent / "new").replace(path)


def _replace_by_one_of_the_same_time(path: Path) -> None:
    status = path.stat()
    _replace(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


CHANGES = (
    _write,
    _write_and_set_the_time_back,
    _replace,
    _replace_by_one_of_the_same_time,
    _cut,
    _lengthen,
    Path.unlink,
)


def _quiet(path: Path) -> None:
    """Long ago: clocks of file systems tick a few times a second."""
    os.utime(path, ns=(10**18, 10**18))


def _verified(src: Path, dst: Path | None = None) -> None:
    verdict = corgi2.verify(src, dst)
    if not verdict.same:
        raise ChangedError(verdict.as_text())


def _loaded(folder: Path) -> None:
    for _ in corgi2.Loader(folder, batch_size=5, buffer="10MB"):
        pass


READERS: dict[str, Callable[[Path], Any]] = {
    "shuffle": lambda data: shuffle(data, data.parent / "out", buffer_blocks=2),
    "shuffle in two passes": lambda data: shuffle(data, data.parent / "out", buffer_blocks=2, passes=2),
    "shuffle in place": lambda data: shuffle(data, in_place=True, buffer_blocks=2),
    "index": lambda data: index_source(find_source(data)),
    "inspect": inspect,
    "verify": lambda data: _verified(data, data.parent / "copy"),
    "loader": _loaded,
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
@pytest.mark.parametrize("reader", READERS)
def test_what_is_read_is_what_was_listed_or_one_line_names_what_changed(
    reader: str, change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing and every single read of the shard."""
    write_source(tmp_path / "data", ".jsonl", [20] * 4)
    for path in (tmp_path / "data").iterdir():
        _quiet(path)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shard, real = tmp_path / "data" / FIRST, LocalStore.readinto
    changed: list[bytes] = []

    def readinto(store: LocalStore, entry: Entry, start: int, buffer: memoryview) -> None:
        if entry.path == FIRST and not changed:
            changed.append(shard.read_bytes())
            change(shard)
        real(store, entry, start, buffer)

    monkeypatch.setattr(LocalStore, "readinto", readinto)
    with pytest.raises(Corgi2Error, match=rf"{FIRST}: has (changed|disappeared) since it was listed") as caught:
        READERS[reader](tmp_path / "data")
    assert len(str(caught.value).splitlines()) == 1 + (reader == "verify" and "\n" in str(caught.value))
    assert changed


@pytest.mark.parametrize("change", [_write, _write_and_set_the_time_back, _cut, _lengthen], ids=lambda c: c.__name__)
def test_a_file_that_changes_while_it_is_open_is_named(
    change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "data", ".jsonl", [20] * 4)
    shard, real = tmp_path / "data" / FIRST, os.preadv
    _quiet(shard)
    source = find_source(tmp_path / "data")
    number = [entry.path for entry in source.entries].index(FIRST)
    changes = iter([change])

    def preadv(fd: int, buffers: Any, offset: int) -> int:
        got = real(fd, [buffers[0][:100]], offset)
        next(changes, lambda _: None)(shard)
        return got

    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(ChangedError, match=f"{FIRST}: (has changed since it was listed|ends at byte)"):
        source.shard(number).readinto(0, memoryview(bytearray(source.entries[number].size)))


def test_a_shuffle_whose_source_changed_in_mid_run_refuses_to_go_on_and_begins_anew(tmp_path: Path) -> None:
    write_source(tmp_path / "data", ".jsonl", [20] * 4)
    job = plan_shuffle(tmp_path / "data", tmp_path / "out", Settings(buffer_blocks=2))
    _write(tmp_path / "data" / FIRST)
    os.utime(tmp_path / "data" / FIRST, ns=(5, 5))
    with pytest.raises(ChangedError, match=f"{FIRST}: has changed since it was listed"):
        run_shuffle(job)
    with pytest.raises(SourceError, match=f"{FIRST}: has changed since the shuffle began; restart=True discards"):
        shuffle(tmp_path / "data", tmp_path / "out", buffer_blocks=2)
    shuffle(tmp_path / "data", tmp_path / "out", buffer_blocks=2, restart=True)
    assert corgi2.verify(tmp_path / "data", tmp_path / "out").same


@pytest.mark.parametrize("change", [_write, _replace, _cut, _lengthen, Path.unlink], ids=lambda c: c.__name__)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_loader_names_a_shard_that_changed_after_it_was_opened(
    suffix: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    write_source(tmp_path / "data", suffix, [20] * 4)
    shard = tmp_path / "data" / f"data-0001{suffix}"
    _quiet(shard)
    loader = corgi2.Loader(tmp_path / "data", batch_size=5, buffer="10MB")
    change(shard)
    with pytest.raises(ChangedError, match=f"{shard.name}: has (changed|disappeared) since it was listed"):
        list(loader)


def test_a_loader_reads_on_where_only_names_and_rights_of_files_change(tmp_path: Path) -> None:
    """A training of weeks outlives a chmod of its folder, and a copy that shares its files."""
    write_source(tmp_path / "data", ".jsonl", [20] * 4)
    loader = corgi2.Loader(tmp_path / "data", batch_size=5, buffer="10MB")
    for path in list((tmp_path / "data").iterdir()):
        path.chmod(0o600)
        os.link(path, tmp_path / path.name)
    assert sum(1 for _ in loader) == 16


def _encrypted(plaintext_footer: bool, **keys: Any) -> bytes:
    class Keys(pe.KmsClient):  # type: ignore[misc]
        def __init__(self, _: Any) -> None:
            pe.KmsClient.__init__(self)

        def wrap_key(self, key: bytes, _: str) -> str:
            return key.hex()

        def unwrap_key(self, key: str, _: str) -> bytes:
            return bytes.fromhex(key)

    sink, table = io.BytesIO(), pa.table({"a": [1, 2, 3]})
    settings = pe.EncryptionConfiguration("key", plaintext_footer=plaintext_footer, **keys)
    factory = pe.CryptoFactory(Keys)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _directory(name: str) -> bytes:
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE
    return info.tobuf()


NO_RECORD, DECRYPT = "the shard holds no record; remove it", "an encrypted Parquet file; decrypt it first"
_LINES, _TAR, _ROWS = b'{"a": 1}\n' * 30, tar_of([("1.txt", b"x")]), parquet_of(pa.table({"a": [1, 2, 3]}))
_DIRECTORIES = b"".join(_directory(f"d{number}") for number in range(200)) + bytes(1024)
_COLUMN: dict[str, Any] = {"column_keys": {"key": ["a"]}}
ODD = {
    "tar of an end mark": (".tar", _TAR, bytes(1024), NO_RECORD),
    "tar of many directories": (".tar", _TAR, _DIRECTORIES, "no member belongs to a sample"),
    "compressed tar of directories": (
        ".tar.gz",
        gzip.compress(_TAR),
        gzip.compress(_DIRECTORIES, 0),
        "no member belongs",
    ),
    "tar of a long file that is no sample": (".tar", _TAR, tar_of([("README", bytes(200_000))]), "no member belongs"),
    "tar of a long padding": (".tar", _TAR, bytes(300_000), NO_RECORD),
    "many blank lines": (".jsonl", _LINES, b" \n" * 100_000, NO_RECORD),
    "tar as GNU tar pads it": (".tar", _TAR, bytes(10_240), NO_RECORD),
    "compressed tar of an end mark": (".tar.gz", gzip.compress(_TAR), gzip.compress(bytes(1024)), NO_RECORD),
    "blank lines": (".jsonl", _LINES, b"\n \n\r\n\t\n", NO_RECORD),
    "compressed blank lines": (".jsonl.gz", gzip.compress(_LINES), gzip.compress(b"\n\n"), NO_RECORD),
    "compressed nothing": (".jsonl.gz", gzip.compress(_LINES), gzip.compress(b""), NO_RECORD),
    "table without rows": (".parquet", _ROWS, parquet_of(pa.table({"a": pa.array([], pa.int64())})), NO_RECORD),
    "encrypted footer": (".parquet", _ROWS, _encrypted(False, **_COLUMN), DECRYPT),
    "encrypted column": (".parquet", _ROWS, _encrypted(True, **_COLUMN), DECRYPT),
    "encrypted by one key": (".parquet", _ROWS, _encrypted(False, uniform_encryption=True), DECRYPT),
}


@pytest.mark.parametrize("alone", [False, True], ids=["among others", "alone"])
@pytest.mark.parametrize(("suffix", "good", "odd", "line"), ODD.values(), ids=ODD)
@pytest.mark.parametrize("reader", READERS)
def test_a_shard_without_a_record_or_a_key_gets_its_line_from_every_command(
    reader: str, suffix: str, good: bytes, odd: bytes, line: str, alone: bool, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    if not alone:
        (data / f"data-0000{suffix}").write_bytes(good)
    (data / f"data-0001{suffix}").write_bytes(odd)
    shutil.copytree(data, tmp_path / "copy")
    with pytest.raises(Corgi2Error, match=rf"^.*data-0001{re.escape(suffix)}: at byte \d+: {line}.*(; .*|$)"):
        _raised(READERS[reader], data)
    if reader == "shuffle in place":
        assert content(data) == content(tmp_path / "copy")


def _raised(reader: Callable[[Path], Any], data: Path) -> None:
    damage = getattr(reader(data), "damage", ())
    if damage:
        raise DamageError(damage)


@pytest.mark.parametrize("place", [b"data/a-\xff.tar", b"data/\xff/a.tar", b"data/notes-\xff", b"data\xff/a.tar"])
@pytest.mark.parametrize("reader", READERS)
def test_a_name_that_is_no_text_is_one_line_that_shows_it(reader: str, place: bytes, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + place))
    path.parent.mkdir(parents=True)
    path.write_bytes(_TAR)
    data = tmp_path / Path(os.fsdecode(place)).parts[0]
    (data / "b.tar").write_bytes(_TAR)
    shutil.copytree(data, tmp_path / "copy")
    with pytest.raises((Corgi2Error, ValueError), match=r"/.*\\xff.*: the name is not UTF-8, .*; rename it") as caught:
        READERS[reader](data)
    assert str(caught.value).isprintable()


def test_no_command_line_ends_in_a_traceback_for_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/data/a-\xff.tar")).write_bytes(_TAR)
    for words in (["inspect"], ["index"], ["shuffle", "--in-place"], ["verify"], ["plan"]):
        run = [sys.executable, "-m", "corgi2", words[0], str(tmp_path / "data"), *words[1:]]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (3, "")
        assert re.fullmatch(r"corgi2: .*a-\\xff\.tar: the name is not UTF-8, .*; rename it\n", done.stderr), done.stderr


KILLED = textwrap.dedent(
    """
    import os, signal, sys
    from corgi2.stores.local import LocalStore

    def pieces():
        yield b"half"
        print("writing", flush=True)
        os.kill(os.getpid(), signal.SIGKILL) if sys.argv[2] == "killed" else sys.stdin.read()

    LocalStore(sys.argv[1]).publish(sys.argv[3], pieces())
    """
)


def _writer(folder: Path, fate: str, path: str) -> "subprocess.Popen[bytes]":
    """A process that has begun to write a file."""
    words = [sys.executable, "-c", KILLED, str(folder), fate, path]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    return process


@pytest.mark.parametrize("in_place", [False, True], ids=["copying", "in place"])
def test_a_run_that_ends_well_leaves_nothing_of_those_that_were_killed_before_it_ended(
    in_place: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has waited for one of them: its number is still taken. What a live one writes is kept."""
    write_source(tmp_path / "in", ".jsonl", [20] * 4)
    target = tmp_path / ("in" if in_place else "out")
    others: list[subprocess.Popen[bytes]] = []
    real = Journal.write_done

    def late(*arguments: Any) -> None:
        others.append(_writer(target, "killed", "x.jsonl"))
        others.append(_writer(target, "killed", ".corgi2/c9/pass-1/x"))
        others.append(_writer(target, "alive", "y.jsonl"))
        others[0].wait()
        real(*arguments)

    monkeypatch.setattr(Journal, "write_done", late)
    shuffle(tmp_path / "in", None if in_place else target, in_place=in_place, buffer_blocks=2)
    (left,) = target.rglob(".*corgi2-tmp")
    assert f"-{others[2].pid}-" in left.name
    for process in others:
        process.communicate(b"")
    assert (target / "y.jsonl").read_bytes() == b"half"
    assert not list(target.rglob(".*corgi2-tmp"))


def test_a_number_that_another_process_got_since_is_no_sign_of_life(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    with store._written("x", []) as (temporary, _):
        mine = re.sub(r"-\d+(\.corgi2-tmp)$", r"-1\1", temporary.name)
        (tmp_path / mine).touch()
        assert mine != temporary.name
        store.sweep()
        assert temporary.exists()
        assert not (tmp_path / mine).exists()


def test_an_index_that_was_half_written_goes_when_the_next_is_kept(tmp_path: Path) -> None:
    write_source(tmp_path / "data", ".jsonl", [20] * 4)
    _writer(tmp_path / "data", "killed", ".corgi2/index").communicate()
    assert list(tmp_path.rglob(".*corgi2-tmp"))
    subprocess.run([sys.executable, "-m", "corgi2", "index", tmp_path / "data"], check=True, capture_output=True)
    assert not list(tmp_path.rglob(".*corgi2-tmp"))


@pytest.mark.parametrize("victim", ["a.jsonl", "sub", "sub/b.jsonl"])
@pytest.mark.parametrize("moment", range(4))
def test_what_goes_while_a_folder_is_listed_is_listed_or_not(
    victim: str, moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    for name in ("a.jsonl", "sub/b.jsonl", "sub/deep/c.jsonl", "z.jsonl"):
        (tmp_path / name).write_text("{}")
    real, calls = os.scandir, iter(range(99))

    def scandir(folder: Path) -> Any:
        number = next(calls)
        found = real(folder) if number != moment else None
        if number in (moment, moment - 1):
            path = tmp_path / victim
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        return found or real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [entry.path for entry in LocalStore(str(tmp_path)).list()][-1] == "z.jsonl"


def test_a_small_file_that_is_replaced_or_goes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real = LocalStore(str(tmp_path)), LocalStore.readinto
    store.publish("a", [b"one"])
    meanwhile: list[Callable[[], object]] = [lambda: store.publish("a", [b"three"]), lambda: store.delete("a")]

    def readinto(self: LocalStore, entry: Entry, start: int, buffer: memoryview) -> None:
        if meanwhile:
            meanwhile.pop(0)()
        real(self, entry, start, buffer)

    monkeypatch.setattr(LocalStore, "readinto", readinto)
    assert read_path(store, "a") is None
    store.publish("a", [b"one"])
    meanwhile.append(lambda: store.publish("a", [b"three"]))
    assert bytes(read_path(store, "a") or b"") == b"three"
