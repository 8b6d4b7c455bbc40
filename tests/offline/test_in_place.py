"""In place: the same, without a second copy; what cannot be undone is not begun."""

import logging
import shutil
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from corgi2.dataset.index_file import open_index
from corgi2.dataset.source import find_source
from corgi2.errors import ChangedError, Corgi2Error, DamageError, ShardError, SourceError, StoreError
from corgi2.offline.journal import Journal
from corgi2.offline.plan_file import commit_plan
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.run import run_shuffle, shuffle
from corgi2.offline.settings import Settings
from corgi2.proof.comparison import verify
from corgi2.stores.local import LocalStore
from corgi2.stores.store import Entry
from tests.conftest import S3
from tests.shards import compressed
from tests.sources import SUFFIXES, content, write_source


def _source(root: Path, suffix: str = ".jsonl", shards: int = 8) -> tuple[Path, Path]:
    """A folder to shuffle, and a copy to compare with."""
    write_source(root / "data", suffix, [20] * shards)
    shutil.copytree(root / "data", root / "copy")
    return root / "data", root / "copy"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_old_shards_are_replaced_and_every_generation_has_its_own_names(suffix: str, tmp_path: Path) -> None:
    data, copy = _source(tmp_path, suffix)
    for generation in (1, 2, 3):
        report = shuffle(data, in_place=True, buffer_blocks=3, seed=generation)
        assert report.groups == 3
        assert _names(data) == [f"data-c{generation}-{number:06d}{suffix}" for number in range(report.shards)]
        assert verify(copy, data).same
        assert verify(data).same
        assert verify(data, quick=True).same
        assert open_index(find_source(data)) is not None


def _loose(suffix: str, size: int) -> bytes:
    """So many bytes of a shard that belong to no record."""
    if suffix.startswith(".jsonl"):
        return b" " * (size - 1) + b"\n"
    info = tarfile.TarInfo("README")
    info.size = size
    return info.tobuf() + bytes(-(-size // 512) * 512)


@pytest.mark.parametrize("size", [100, 20_000, 300_000])
@pytest.mark.parametrize("place", [0, 5])
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".jsonl", ".jsonl.zst"])
def test_a_shard_without_a_record_is_found_before_anything_is_touched(
    suffix: str, place: int, size: int, tmp_path: Path
) -> None:
    data, copy = _source(tmp_path, suffix, shards=6)
    odd = sorted(data.iterdir())[place]
    odd.write_bytes(compressed(_loose(suffix, size) + (bytes(1024) if suffix.startswith(".tar") else b""), suffix))
    shutil.copy(odd, copy)
    with pytest.raises(DamageError, match=f"{odd.name}: at byte 0: .*no (record|member)"):
        shuffle(data, in_place=True, buffer_blocks=2)
    assert content(data) == content(copy)
    assert not (data / ".corgi2").exists()


@pytest.mark.parametrize("suffix", [".tar", ".jsonl"])
def test_a_shard_that_begins_with_much_else_is_read_whole_to_find_its_records_and_others_are_not(
    suffix: str, tmp_path: Path
) -> None:
    data, copy = _source(tmp_path, suffix, shards=6)
    usual = shuffle(data, in_place=True, buffer_blocks=2)
    first = sorted(copy.iterdir())[0]
    first.write_bytes(_loose(suffix, 300_000) + first.read_bytes())
    shutil.copytree(copy, tmp_path / "again")
    report = shuffle(tmp_path / "again", in_place=True, buffer_blocks=2)
    assert (usual.records, report.records, report.reads) == (120, 120, usual.reads)
    assert report.other_requests == usual.other_requests + 1
    assert verify(copy, tmp_path / "again").same


def test_no_old_shard_is_deleted_before_its_groups_marker_was_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, _ = _source(tmp_path)
    marked: list[set[str]] = []
    read_back: set[str] = set()
    real_read, real_delete = LocalStore.readinto, LocalStore.delete

    def readinto(self: LocalStore, entry: Entry, start: int, buffer: memoryview) -> None:
        real_read(self, entry, start, buffer)
        if "/groups/" in entry.path:
            read_back.add(entry.path)

    def delete(self: LocalStore, path: str) -> None:
        if path.endswith(".jsonl"):
            marked.append(set(read_back))
        real_delete(self, path)

    monkeypatch.setattr(LocalStore, "readinto", readinto)
    monkeypatch.setattr(LocalStore, "delete", delete)
    shuffle(data, in_place=True, buffer_blocks=4)
    assert [len(paths) for paths in marked] == [1] * 4 + [2] * 4


def test_a_marker_that_reads_back_otherwise_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, copy = _source(tmp_path)
    monkeypatch.setattr(Journal, "read_marker", lambda *_: None)
    with pytest.raises(SourceError, match="is not what was written there; nothing was deleted"):
        shuffle(data, in_place=True, buffer_blocks=4)
    assert set(_names(copy)) <= set(_names(data))


def test_extra_storage_is_the_groups_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, _ = _source(tmp_path, shards=20)
    before = sum(path.stat().st_size for path in data.glob("*.jsonl"))
    most = 0
    real = Journal.write_marker

    def noted(*arguments: Any, **options: Any) -> None:
        nonlocal most
        most = max(most, sum(path.stat().st_size for path in data.glob("*.jsonl")))
        real(*arguments, **options)

    monkeypatch.setattr(Journal, "write_marker", noted)
    shuffle(data, in_place=True, buffer_blocks=2)
    assert before < most <= before * 1.25  # 2 of 20 in a group, and the next group on its way


def test_a_glob_leaves_other_shards_alone_and_its_index_knows_both(tmp_path: Path) -> None:
    data, copy = _source(tmp_path)
    (data / "extra-0.jsonl").write_text('{"t": 1}\n' * 3)
    shuffle(f"{data}/data-*.jsonl", in_place=True, buffer_blocks=4)
    assert verify(copy, f"{data}/data-*.jsonl").same
    assert (data / "extra-0.jsonl").read_text() == '{"t": 1}\n' * 3
    shuffle(f"{data}/extra-*.jsonl", in_place=True)
    assert _names(data)[-1] == "extra-c2-000000.jsonl"
    assert open_index(find_source(data)) is not None
    assert verify(f"{data}/data-*.jsonl").same


def _refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises((Corgi2Error, ValueError)) as caught:
        shuffle(*arguments, in_place=True, **options)
    return str(caught.value)


def test_what_cannot_be_done_in_place_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    data, _ = _source(tmp_path)
    before = content(data)
    ranged = f"{data}/data-{{0000..0007}}.jsonl"
    assert "data-c1-000000.jsonl, which does not match what you named" in _refusal(ranged)
    assert "does not match what you named" in _refusal(data / "data-0000.jsonl")
    assert "do not go together: it would drop about half" in _refusal(data, with_replacement=True)
    assert "do not go together: what is left out would be deleted" in _refusal(data, skip_bad=True)
    assert "in_place=True has no target" in _refusal(data, tmp_path / "out")
    assert content(data) == before


@pytest.mark.parametrize("named", ["", "train-0000*.jsonl"])
def test_the_glob_that_a_refusal_in_place_shows_is_one_that_works(named: str, tmp_path: Path) -> None:
    data, _ = _source(tmp_path)
    for number, path in enumerate(sorted(data.glob("data-*"))):
        path.rename(data / f"{'val' if number == 5 else 'train'}-{number:06d}.jsonl")
    for generation in range(2):
        text = _refusal(data / (f"train-c{generation}-0000*.jsonl" if named and generation else named))
        assert f"{data}/train-*.jsonl" in text
        assert shuffle(data / "train-*.jsonl", in_place=True).shards > 1


@pytest.mark.parametrize("name", ["index.json", "data-0003.idx", "data-0003.jsonl.idx", "data-0000_stats.json"])
def test_a_foreign_index_that_would_go_stale_is_refused(name: str, tmp_path: Path) -> None:
    data, _ = _source(tmp_path)
    (data / name).write_text("{}")
    before = content(data)
    assert f"{name}: looks like an index of the shards, which would go stale" in _refusal(data)
    assert content(data) == before


def test_a_readme_stays_where_it_is(tmp_path: Path) -> None:
    data, _ = _source(tmp_path)
    (data / "README.md").write_text("mine")
    shuffle(data, in_place=True)
    assert (data / "README.md").read_text() == "mine"


def test_an_unfinished_one_goes_on_with_its_own_plan_and_refuses_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, copy = _source(tmp_path)
    real, calls = LocalStore.delete, iter(range(100))

    def full(self: LocalStore, path: str) -> None:
        if next(calls) == 3:
            raise StoreError("the disk is gone")
        real(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete", full)
        with pytest.raises(StoreError, match="the disk is gone"):
            shuffle(data, in_place=True, buffer_blocks=2)
    with pytest.raises(SourceError, match="is not finished; run its command again"):
        find_source(data)
    assert "with seed=0, not seed=4" in _refusal(data, buffer_blocks=2, seed=4)
    (data / "data-9999.jsonl").write_text('{"t": "new"}\n')
    assert "data-9999.jsonl: is new since the shuffle in place began" in _refusal(data, buffer_blocks=2)
    (data / "data-9999.jsonl").unlink()
    waiting = _waiting(data)
    waiting[0].unlink()
    assert f"{waiting[0].name}: is gone, and was not shuffled yet; restore it" in _refusal(data, buffer_blocks=2)
    waiting[0].write_text("")
    assert f"{waiting[0].name}: at byte 0: the shard is empty (zero bytes)" in _refusal(data, buffer_blocks=2)
    shutil.copy2(copy / waiting[0].name, waiting[0])
    (made,) = {path.name for path in data.glob("data-0*")} - {path.name for path in waiting}
    (data / made).write_text('{"t": "other"}\n')
    assert f"{made}: has changed, and its old content is already in new shards" in _refusal(data, buffer_blocks=2)
    (data / made).unlink()
    shuffle(data, in_place=True, buffer_blocks=2)
    assert verify(copy, data).same
    assert verify(data).same


def _waiting(data: Path) -> list[Path]:
    """The old shards whose groups have no marker yet."""
    planned = plan_shuffle(data, None, Settings(buffer_blocks=2, in_place=True))
    done = planned.journal.marked(1, len(planned.first.groups))
    left = [group for number, group in enumerate(planned.first.groups) if number not in done]
    return [data / planned.index.entries[shard].path for group in left for shard in group.tolist()]


_DAMAGED = pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".parquet", ".jsonl.zst"])


def _stopped(data: Path, suffix: str) -> Path:
    """Shuffle until a damaged shard of the last group stops it; that shard. Of a tar, planning does not see it; others
    are damaged when they were planned."""
    planned = plan_shuffle(data, None, Settings(buffer_blocks=2, in_place=True))
    if suffix != ".tar":
        commit_plan(planned)
    bad = data / planned.index.entries[int(planned.first.groups[-1][0])].path
    bad.write_bytes(bad.read_bytes()[: bad.stat().st_size * 2 // 3])
    with pytest.raises(ShardError, match=bad.name):
        shuffle(data, in_place=True, buffer_blocks=2)
    assert len(list(data.glob(f"data-0*{suffix}"))) == 2
    return bad


@_DAMAGED
def test_a_damaged_shard_that_was_restored_is_read_as_it_is_now(
    suffix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, copy = _source(tmp_path, suffix)
    bad = _stopped(data, suffix)
    shutil.copy(copy / bad.name, bad)  # at another time
    with caplog.at_level(logging.WARNING, "corgi2"):
        shuffle(data, in_place=True, buffer_blocks=2)
    assert "replaced since the plan was made, and read as they are now: 1 shard" in caplog.text
    assert verify(copy, data).same
    assert verify(data).same


def test_a_restored_shard_that_was_consumed_and_not_deleted_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, copy = _source(tmp_path, ".tar")
    bad = _stopped(data, ".tar")
    shutil.copy(copy / bad.name, bad)

    def stop(_store: LocalStore, path: str) -> None:
        raise StoreError(f"{path}: stopped")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete", stop)
        with pytest.raises(StoreError, match="stopped"):
            shuffle(data, in_place=True, buffer_blocks=2)
    assert bad.exists()
    (data / ".corgi2" / "c1" / "lock").unlink(missing_ok=True)
    shuffle(data, in_place=True, buffer_blocks=2)
    assert verify(copy, data).same


def test_a_shard_that_is_replaced_while_it_is_read_is_not_consumed(
    tmp_path: Path,
) -> None:
    """By a longer one, of which a run that has listed the shorter one would read the beginning."""
    data, copy = _source(tmp_path)
    late = plan_shuffle(data, None, Settings(buffer_blocks=2, in_place=True))
    longer = data / late.index.entries[0].path
    for folder in (data, copy):
        with (folder / longer.name).open("a") as file:
            file.write('\n{"t": "more"}\n')
    with pytest.raises(ChangedError, match=f"{longer.name}: has changed since it was listed"):
        run_shuffle(late)
    shuffle(data, in_place=True, buffer_blocks=2)
    assert verify(copy, data).same


def test_a_shard_that_is_replaced_once_it_was_read_is_not_consumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, _ = _source(tmp_path)
    real, replaced = LocalStore.readinto, list[Path]()

    def readinto(self: LocalStore, entry: Entry, start: int, buffer: memoryview) -> None:
        real(self, entry, start, buffer)
        if entry.path.endswith(".jsonl") and len(buffer) == entry.size and (data / ".corgi2").exists() and not replaced:
            replaced.append(data / entry.path)
            replaced[0].write_text('{"t": "restored"}\n')

    monkeypatch.setattr(LocalStore, "readinto", readinto)
    with pytest.raises(SourceError, match="has changed while the shuffle in place was at work"):
        shuffle(data, in_place=True, buffer_blocks=2)
    assert replaced[0].read_text() == '{"t": "restored"}\n'


def test_shards_are_not_replaced_under_another_run(tmp_path: Path) -> None:
    data, copy = _source(tmp_path, ".tar")
    bad = _stopped(data, ".tar")
    shutil.copy(copy / bad.name, bad)
    with Journal(LocalStore(str(data)), 1).lock():
        assert "shards were replaced, and another run is at work there" in _refusal(data, buffer_blocks=2)
    shuffle(data, in_place=True, buffer_blocks=2)
    assert verify(copy, data).same


@pytest.mark.parametrize("in_place", [False, True], ids=["copying", "in place"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_shard_of_no_bytes_is_refused_before_anything_is_written(suffix: str, in_place: bool, tmp_path: Path) -> None:
    data, _ = _source(tmp_path, suffix)
    (data / f"data-0003{suffix}").write_bytes(b"")
    before = content(data)
    with pytest.raises(DamageError, match="data-0003.*: at byte 0: the shard is empty .zero bytes.; restore it"):
        shuffle(data, None if in_place else tmp_path / "out", in_place=in_place, buffer_blocks=2)
    assert content(data) == before
    assert not (tmp_path / "out").exists()


def _until_marker(data: Path, number: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Shuffle until a marker is to be written, after so many others."""
    real, calls = Journal.write_marker, iter(range(100))

    def write_marker(*arguments: Any, **choices: Any) -> None:
        if next(calls) == number:
            raise StoreError("stopped")
        real(*arguments, **choices)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write_marker", write_marker)
        with pytest.raises(StoreError, match="stopped"):
            shuffle(data, in_place=True, **options)


@pytest.mark.parametrize("passes", [1, 2])
def test_restart_discards_what_was_begun_in_place_while_no_group_is_done(
    passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, copy = _source(tmp_path)
    _until_marker(data, 0, monkeypatch, buffer_blocks=2, passes=passes)
    shuffle(data, in_place=True, buffer_blocks=3, passes=passes, restart=True)
    assert all(name.startswith("data-c2-") for name in _names(data))
    assert verify(copy, data).same
    assert verify(data).same
    _until_marker(data, 1, monkeypatch, buffer_blocks=2, passes=passes)
    before = content(data)
    assert "restart=True would lose what" in _refusal(data, buffer_blocks=3, passes=passes, restart=True)
    assert content(data) == before
    shuffle(data, in_place=True, buffer_blocks=2, passes=passes)
    assert verify(copy, data).same


def test_a_run_whose_shuffle_was_discarded_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, copy = _source(tmp_path)
    real = Journal.write_marker

    def write_marker(self: Journal, *arguments: Any, **choices: Any) -> None:
        assert self.decide("discarded")  # as a restart does that has seen no marker
        real(self, *arguments, **choices)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write_marker", write_marker)
        assert "was discarded meanwhile; nothing was deleted" in _refusal(data, buffer_blocks=2)
    assert set(_names(copy)) <= set(_names(data))
    assert "a restart of the shuffle in place was stopped there" in _refusal(data, buffer_blocks=2)
    shuffle(data, in_place=True, buffer_blocks=2, restart=True)
    assert verify(copy, data).same


def test_a_restart_in_place_that_is_stopped_anywhere_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, copy = _source(tmp_path, shards=4)
    real = LocalStore.delete
    for moment in range(20):
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        _until_marker(data, 0, monkeypatch, buffer_blocks=2)
        calls = iter(range(1000))

        def delete(self: LocalStore, path: str, calls: Any = calls, moment: int = moment) -> None:
            if next(calls) == moment:
                raise StoreError("stopped")
            real(self, path)

        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "delete", delete)
            patch.setattr(Journal, "other", lambda _: None)
            with suppress(StoreError):
                shuffle(data, in_place=True, buffer_blocks=2, restart=True)
        is_planned = (data / ".corgi2" / "c2" / "plan").exists()
        assert is_planned or set(_names(copy)) <= set(_names(data))
        if (data / ".corgi2" / "c2" / "done").exists():
            break
        shuffle(data, in_place=True, buffer_blocks=2, restart=not is_planned)
        assert verify(copy, data).same
    assert moment > 4


def test_a_new_shard_that_is_gone_is_to_be_restored_because_what_it_was_made_of_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, copy = _source(tmp_path)
    _until_marker(data, 2, monkeypatch, buffer_blocks=2)
    lost = data / "data-c1-000000.jsonl"
    held = lost.read_bytes()
    lost.unlink()
    words = _refusal(data, buffer_blocks=2)
    assert f"{lost.name}: is gone; what it was made of was consumed: restore it from a backup" in words
    marker = data / ".corgi2" / "c1" / "pass-1" / "groups" / "000000"
    text = marker.read_text()
    marker.write_text("{")
    assert "restore it from a backup" in _refusal(data, buffer_blocks=2)
    marker.write_text(text)
    lost.write_bytes(held)
    shuffle(data, in_place=True, buffer_blocks=2)
    assert verify(copy, data).same


def test_a_shard_that_comes_back_after_a_later_generation_has_consumed_it_is_refused(tmp_path: Path) -> None:
    """As a run writes it that slept meanwhile. A new shard that is named like the first ones is welcome."""
    data, copy = _source(tmp_path)
    shuffle(data, in_place=True, buffer_blocks=2)
    late = data / "data-c1-000000.jsonl"
    held = late.read_bytes()
    shuffle(data, in_place=True, buffer_blocks=2)
    late.write_bytes(held)
    before = content(data)
    assert f"{late.name}: its records were shuffled in place again" in _refusal(data, buffer_blocks=2)
    assert content(data) == before
    late.unlink()
    for folder in (data, copy):
        (folder / "data-0000.jsonl").write_text('{"t": "new"}\n')
    (tmp_path / "old").mkdir()
    write_source(tmp_path / "old" / "in", ".jsonl", [20])
    shutil.copy(tmp_path / "old" / "in" / "data-0000.jsonl", copy / "data-9999.jsonl")
    shuffle(data, in_place=True, buffer_blocks=2)
    assert verify(copy, data).same


def test_on_s3_it_gives_the_same_bytes_and_says_when_old_versions_stay(
    s3: S3, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, copy = _source(tmp_path, ".tar")
    store = s3.store()
    for path in sorted(copy.iterdir()):
        store.publish(path.name, [path.read_bytes()])
    options: dict[str, Any] = {"in_place": True, "buffer_blocks": 3}
    shuffle(data, **options)
    with caplog.at_level(logging.WARNING, "corgi2"):
        shuffle(s3.url, **options, src_options=s3.options)
    assert "keeps old versions" not in caplog.text
    for path in data.glob("*.tar"):
        entry = store.head(path.name)
        assert entry is not None
        body = bytearray(entry.size)
        store.readinto(entry, 0, memoryview(body))
        assert bytes(body) == path.read_bytes()
    assert verify(copy, s3.url, dst_options=s3.options).same
    assert verify(s3.url, src_options=s3.options).same
    s3.keep_versions()
    with caplog.at_level(logging.WARNING, "corgi2"):
        shuffle(s3.url, **options, src_options=s3.options)
    assert "keeps old versions of what is deleted: in place frees nothing there" in caplog.text
    assert verify(copy, s3.url, dst_options=s3.options).same
