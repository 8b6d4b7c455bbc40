"""A record is the same whatever lies around it, and what belongs to no record is neither lost nor altered: however
shards are mixed, cut into blocks and read, their digests add up to the same."""

import io
import json
import shutil
import subprocess
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgi2.errors import ShardError
from corgi2.formats.format import Format
from corgi2.offline.run import shuffle
from corgi2.proof.comparison import verify
from corgi2.records.arena import Arena
from corgi2.records.hashing import Digest
from corgi2.records.shard import Piece
from tests.patching import patch_everywhere
from tests.shards import JSONL, TAR, MemoryShard, read_shards, records_of, rewritten, tar_of

KEY = 0x5EED


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", body: bytes = b"") -> bytes:
    """A member, with the headers before it, in PAX form where its name is long."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(body)
    return info.tobuf(tarfile.PAX_FORMAT) + body + bytes(-len(body) % 512)


NAMES = st.sampled_from(["d", "README", "deep/er/LICENSE", "n" * 150, "__meta__/x.json"])
LOOSE_MEMBERS = st.one_of(
    st.builds(_member, NAMES, st.just(tarfile.DIRTYPE)),
    st.builds(_member, NAMES, st.just(tarfile.SYMTYPE), st.just("a.x")),
    st.builds(lambda name, body: _member(name, body=body), NAMES, st.binary(max_size=600)),
    st.builds(_member, st.just("fifo"), st.just(tarfile.FIFOTYPE)),
    st.builds(lambda name: _member(name, body=b"1") + _member("COPY", tarfile.LNKTYPE, name), NAMES),
    st.just(tarfile.TarInfo.create_pax_global_header({"comment": "x"}) + _member("d", tarfile.DIRTYPE)),
)
BLANKS = st.sampled_from([b"\n", b"\r\n", b" \n", b"\t \n", b"          \n"])


def _sample(number: int, parts: int, inner: list[bytes], linked: bool) -> bytes:
    members = [_member(f"{number:04d}.{part}", body=b"%d" % number * part) for part in range(1, parts + 1)]
    link = _member("LINK", tarfile.LNKTYPE, f"{number:04d}.1") if linked else b""
    return members[0] + b"".join(inner) + b"".join(members[1:]) + link if parts > 1 else members[0] + link


@st.composite
def tars(draw: st.DrawFn, first: int) -> bytes:
    """Samples, and before, between and behind them what belongs to none."""
    few = st.lists(LOOSE_MEMBERS, max_size=2).map(b"".join)
    body = draw(few)
    for number in range(first, first + draw(st.integers(1, 5))):
        inner = draw(st.lists(LOOSE_MEMBERS, max_size=1))
        body += _sample(number, draw(st.integers(1, 3)), inner, draw(st.booleans())) + draw(few)
    return body + bytes(1024)


@st.composite
def lines(draw: st.DrawFn, first: int) -> bytes:
    few = st.lists(BLANKS, max_size=3).map(b"".join)
    body = draw(few)
    for number in range(first, first + draw(st.integers(1, 8))):
        body += draw(st.sampled_from([b"", b"  "])) + json.dumps({"n": number}).encode() + b"\n" + draw(few)
    return body + draw(st.sampled_from([b"", b"   ", b'{"n": -%d}' % (first + 1)]))


FORMATS: list[tuple[Format, Callable[[int], st.SearchStrategy[bytes]]]] = [(TAR, tars), (JSONL, lines)]


def _shards(make: Callable[[int], st.SearchStrategy[bytes]]) -> st.SearchStrategy[list[bytes]]:
    return st.integers(1, 4).flatmap(lambda count: st.tuples(*(make(100 * n) for n in range(1, count + 1))).map(list))


def _streamed(format: Format, shards: list[bytes]) -> Digest:
    tables = (table for data in shards for table in format.stream(MemoryShard(data)))
    return sum((format.digest(table, KEY) for table in tables), Digest())


def _mixed(format: Format, shards: list[bytes], order: Any, cut: int) -> list[bytes]:
    group = read_shards(format, shards)
    chosen = np.asarray(order)[np.asarray(order) < group.records]
    return [
        rewritten(format, group, part, shards[0]) for part in np.split(chosen, [min(cut, len(chosen))]) if len(part)
    ]


def _members(shards: list[bytes]) -> Counter[Any]:
    """All that other readers see, by the standard library."""
    seen: Counter[Any] = Counter()
    for data in shards:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                body = archive.extractfile(member) if member.isreg() else None
                seen[member.name, member.type, member.linkname, body.read() if body else b""] += 1
    return seen


def _lines(shards: list[bytes]) -> Counter[Any]:
    return Counter(
        line for data in shards for line in (data if data.endswith(b"\n") else data + b"\n").split(b"\n")[:-1]
    )


@settings(max_examples=150)
@pytest.mark.parametrize(("format", "make"), FORMATS, ids=["tar", "jsonl"])
@given(data=st.data())
def test_mixing_again_and_again_changes_no_digest_and_no_member(
    format: Format, make: Callable[[int], st.SearchStrategy[bytes]], data: st.DataObject
) -> None:
    shards = data.draw(_shards(make))
    before, seen = _streamed(format, shards), (_members if format is TAR else _lines)(shards)
    for _ in range(3):
        order = data.draw(st.permutations(range(sum(len(records_of(read_shards(format, [s]))) for s in shards))))
        shards = _mixed(format, shards, order, data.draw(st.integers(1, 20)))
        assert _streamed(format, shards) == before
        assert (_members if format is TAR else _lines)(shards) == seen


@settings(max_examples=100)
@pytest.mark.parametrize(("format", "make"), FORMATS, ids=["tar", "jsonl"])
@given(data=st.data(), block_bytes=st.integers(1, 3000))
def test_blocks_hold_the_same_records_and_the_same_loose_bytes_as_the_shard(
    format: Format, make: Callable[[int], st.SearchStrategy[bytes]], data: st.DataObject, block_bytes: int
) -> None:
    shard = MemoryShard(data.draw(make(100)))
    scan = format.scan(shard, block_bytes)
    seen: list[Digest] = []
    pieces = [Piece(shard, block.start, block.length, block.checksum) for block in scan.blocks]
    group = format.read(pieces, Arena(1 << 24), see=lambda table: seen.append(format.digest(table, KEY)))
    assert list(group.counts) == [block.records for block in scan.blocks]
    assert sum(seen, Digest()) == _streamed(format, [shard.data])
    assert group.footprint <= sum(block.footprint for block in scan.blocks)


@settings(max_examples=60)
@pytest.mark.parametrize(("format", "make"), FORMATS, ids=["tar", "jsonl"])
@given(data=st.data(), window=st.integers(512, 5000))
def test_however_little_is_read_at_a_time_the_digest_is_the_same(
    format: Format, make: Callable[[int], st.SearchStrategy[bytes]], data: st.DataObject, window: int
) -> None:
    shard = data.draw(make(100))
    expected = _streamed(format, [shard])
    with pytest.MonkeyPatch.context() as patch:
        step = window // 512 * 512
        patch_everywhere(patch, "corgi2.formats.framed", READ_BYTES=window, _LEAST_PART=window)
        patch_everywhere(patch, "corgi2.formats.framed", STEP_BYTES=step, _TINY_STEP_BYTES=step)
        assert _streamed(format, [shard]) == expected
        scan = format.scan(MemoryShard(shard), 1 << 20)
        assert sum(block.records for block in scan.blocks) == expected.count
        group = read_shards(format, [shard])
        assert group.records == expected.count


@pytest.mark.parametrize(("format", "make"), FORMATS, ids=["tar", "jsonl"])
@given(data=st.data())
def test_what_belongs_to_no_record_is_proven_item_by_item(
    format: Format, make: Callable[[int], st.SearchStrategy[bytes]], data: st.DataObject
) -> None:
    loose = data.draw(LOOSE_MEMBERS if format is TAR else BLANKS)
    shard = data.draw(make(100))
    more = _streamed(format, [loose + shard])
    less = _streamed(format, [shard])
    assert (more.count, more.low, more.high) == (less.count, less.low, less.high)
    assert more.loose > less.loose
    assert (more.loose_low, more.loose_high) != (less.loose_low, less.loose_high)


def _gnu_tar(folder: Path, archive: Path) -> None:
    subprocess.run(["tar", "-cf", archive, folder.name], cwd=folder.parent, check=True)


def _gnu_tar_sorted(folder: Path, archive: Path) -> None:
    subprocess.run(["tar", "--sort=name", "--format=posix", "-cf", archive, "-C", folder, "."], check=True)


def _bsdtar(folder: Path, archive: Path) -> None:
    _require("bsdtar", "libarchive-tools")
    subprocess.run(["bsdtar", "-cf", archive, "-C", folder.parent, folder.name], check=True)


def _python(folder: Path, archive: Path) -> None:
    with tarfile.open(archive, "w") as tar:
        tar.add(folder, folder.name)


def _seven_zip(folder: Path, archive: Path) -> None:
    program = next((name for name in ("7zz", "7z", "7za") if shutil.which(name)), "7z")
    _require(program, "7zip")
    command = [program, "a", "-ttar", "-bso0", "-bsp0", str(archive), folder.name]
    subprocess.run(command, cwd=folder.parent, check=True, capture_output=True)


def _require(program: str, package: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (package {package})")


def _folder(root: Path, shard: int, parts: tuple[str, ...]) -> Path:
    """Samples in nested folders, and files that are none, as people pack them."""
    folder = root / f"folder-{shard}"
    for number in range(12):
        place = folder / f"class-{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        for part in parts:
            (place / f"{shard}-{number:03d}.{part}").write_text(f"{part} {shard} {number}" * (number * 40))
    (folder / "README").write_text("read me")
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("README")
    return folder


PACKERS = [(_gnu_tar, False), (_gnu_tar_sorted, True), (_bsdtar, False), (_python, True), (_seven_zip, True)]


@pytest.mark.parametrize(("pack", "is_sorted"), PACKERS)
@pytest.mark.parametrize("way", [{}, {"passes": 2}, {"in_place": True}, {"in_place": True, "passes": 2}], ids=str)
def test_archives_of_folders_by_real_programs_are_shuffled_and_proven(
    pack: Callable[[Path, Path], None], is_sorted: bool, way: dict[str, Any], tmp_path: Path
) -> None:
    for folder in (tmp_path / "in", tmp_path / "copy"):
        folder.mkdir()
    for shard in range(4):
        pack(_folder(tmp_path, shard, ("txt", "cls") if is_sorted else ("txt",)), tmp_path / "in" / f"s-{shard}.tar")
        shutil.copy(tmp_path / "in" / f"s-{shard}.tar", tmp_path / "copy")
    before = _members([path.read_bytes() for path in (tmp_path / "in").glob("*.tar")])
    places = (tmp_path / "copy",) if way.get("in_place") else (tmp_path / "in", tmp_path / "out")
    assert shuffle(*places, buffer_blocks=2, **way).records == 48
    assert verify(tmp_path / "in", places[-1]).same
    assert verify(places[-1]).same
    assert _members([path.read_bytes() for path in places[-1].glob("*.tar")]) == before


@pytest.mark.parametrize("way", [{}, {"in_place": True}], ids=str)
def test_samples_that_are_torn_apart_are_refused_by_a_shuffle_that_never_scanned_them(
    way: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    torn = tar_of([(f"{n}.{part}", b"x") for part in ("jpg", "cls") for n in range(4)])
    (tmp_path / "in" / "s.tar").write_bytes(torn)
    places = (tmp_path / "in",) if way else (tmp_path / "in", tmp_path / "out")
    with pytest.raises(ShardError, match="members of one sample do not lie together.*--sort=name"):
        shuffle(*places, **way)
    assert (tmp_path / "in" / "s.tar").read_bytes() == torn
