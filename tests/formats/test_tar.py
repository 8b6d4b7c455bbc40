"""WebDataset tars: which bytes make a record, and what is refused. The rules are in docs/formats.md."""

import io
import itertools
import tarfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import webdataset
from hypothesis import given, settings
from hypothesis import strategies as st

from corgi2.errors import ShardError
from corgi2.formats.framed.frames import Where
from corgi2.formats.tar.archive import read_archive
from corgi2.order.neighbours import keep_apart
from corgi2.order.permutations import permutation
from tests.patching import patch_everywhere
from tests.shards import TAR, MemoryShard, read_shards, records_of, rewritten, samples_of, tar_of, tar_of_infos

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
NAMES = st.text("abcxyz0._-/äß\n", min_size=1, max_size=130).filter(
    lambda name: not name.startswith("/") and "//" not in name and not name.endswith("/")
)


def _keys(data: bytes) -> list[str]:
    return [sample["__key__"] for sample in samples_of(TAR, data)]


def _reference(data: bytes, shard: int = 0) -> list[dict[str, object]]:
    """The samples as WebDataset itself groups them."""
    files = webdataset.tariterators.tar_file_iterator(io.BytesIO(data))
    named = ({**file, "__url__": f"shard-{shard}"} for file in files)
    return list(webdataset.tariterators.group_by_keys(named))


def _special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def _with_global_header(fields: dict[str, str], members: Sequence[tuple[str, bytes]]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT, pax_headers=fields) as archive:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return sink.getvalue()


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
@settings(max_examples=200)
@given(names=st.lists(NAMES, min_size=1, max_size=12), sizes=st.lists(st.integers(0, 1500), min_size=12, max_size=12))
def test_records_are_webdatasets_samples(format: int, names: list[str], sizes: list[int]) -> None:
    members = [(name, bytes([65 + n]) * size) for n, (name, size) in enumerate(zip(names, sizes, strict=False))]
    try:
        data = tar_of(members, format)
    except ValueError:  # ustar has no room for the name
        return
    try:
        expected = _reference(data)
    except ValueError:  # two equal parts of one sample
        with pytest.raises(ShardError, match="a second member"):
            read_shards(TAR, [data])
        return
    if not expected:
        with pytest.raises(ShardError, match="no member belongs to a sample"):
            read_shards(TAR, [data])
        return
    if _is_torn(expected):
        with pytest.raises(ShardError, match="members of one sample do not lie together"):
            read_shards(TAR, [data])
        return
    assert samples_of(TAR, data) == expected


def _is_torn(samples: list[dict[str, Any]]) -> bool:
    """Whether a key comes back with none of the parts that it came with before."""
    seen: dict[str, set[str]] = {}
    for sample in samples:
        parts = sample.keys() - {"__key__", "__url__"}
        if not seen.get(sample["__key__"], parts) & parts:
            return True
        seen[sample["__key__"]] = parts
    return False


PARTS = ("jpg", "CLS", "seg.png", "a-name-of-sixteen", "a-name-of-15-ch")
SAMPLES = st.tuples(st.integers(1, 90), st.lists(st.sampled_from(PARTS), min_size=1, unique=True))
"""How long the key is, and which parts there are."""


@given(
    shards=st.lists(st.lists(SAMPLES, min_size=1, max_size=6), min_size=1, max_size=3),
    alike=st.booleans(),
    only=st.none() | st.sets(st.sampled_from(PARTS).map(str.lower)),
    seed=st.integers(0, 99),
)
def test_samples_of_several_shards_are_decoded_in_any_order(
    shards: list[list[tuple[int, list[str]]]], alike: bool, only: set[str] | None, seed: int
) -> None:
    tars = []
    for number, samples in enumerate(shards):
        cut = [(length, shards[0][0][1] if alike else parts) for length, parts in samples]
        keys = (f"{number}{sample}" + "k" * length for sample, (length, _) in enumerate(cut))
        named = [f"{key}.{part}" for key, (_, parts) in zip(keys, cut, strict=True) for part in parts]
        tars.append(tar_of([(name, name.encode() * 9) for name in named], tarfile.GNU_FORMAT))
    expected = [sample for number, data in enumerate(tars) for sample in _reference(data, number)]
    group, order = read_shards(TAR, tars), permutation(len(expected), (seed,))
    decoder = TAR.decoder(group, "shard")
    assert list(decoder.samples(order)) == [expected[number] for number in order]
    names = {name for sample in expected for name in sample if name != "__url__"}
    asked = names if only is None else (names & only) | {"__key__"}
    columns = decoder.columns(order, only)
    assert columns == {name: [expected[number].get(name) for number in order] for name in asked}
    assert TAR.decoder(group, "shard").columns(order[:0]) == {"__key__": []}


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
@given(count=st.integers(1, 20), seed=st.integers(0, 99))
def test_members_come_out_bit_for_bit_headers_included(format: int, count: int, seed: int) -> None:
    infos = []
    for number in range(count):
        info = tarfile.TarInfo(f"{'deep/' * (number * 3)}s{number:03d}.bin")
        info.mtime, info.uid, info.mode, info.uname = number * 7, number, 0o640, "user"
        infos.append((info, bytes([number]) * number * 100))
    try:
        data = tar_of_infos(infos, format)
    except ValueError:
        return
    group = read_shards(TAR, [data])
    whole = rewritten(TAR, group, permutation(count, (seed,)), data)
    body = b"".join(records_of(group))
    assert data.startswith(body)
    assert set(data[len(body) :]) <= {0}
    before = {member.name: (member.get_info(), member.pax_headers) for member in tarfile.open(fileobj=io.BytesIO(data))}
    after = {member.name: (member.get_info(), member.pax_headers) for member in tarfile.open(fileobj=io.BytesIO(whole))}
    assert before == after


def test_directories_links_and_names_without_a_dot_travel_with_the_next_sample() -> None:
    members = [
        (_special("d", tarfile.DIRTYPE), b""),
        (tarfile.TarInfo("README"), b"read me"),
        (tarfile.TarInfo("a.jpg"), b"A"),
        (_special("c.lnk", tarfile.SYMTYPE, "a.jpg"), b""),
        (tarfile.TarInfo("a.cls"), b"1"),
        (tarfile.TarInfo("LICENSE"), b"free"),
        (tarfile.TarInfo("b.jpg"), b"B"),
        (_special("d2", tarfile.DIRTYPE), b""),
    ]
    data = tar_of_infos(members)
    first, second = (
        [member.name for member in tarfile.open(fileobj=io.BytesIO(record))]
        for record in records_of(read_shards(TAR, [data]))
    )
    assert first == ["d", "README", "a.jpg", "c.lnk", "a.cls"]
    assert second == ["LICENSE", "b.jpg", "d2"]
    assert [set(sample) for sample in samples_of(TAR, data)] == [
        {"__key__", "__url__", "jpg", "cls"},
        {"__key__", "__url__", "jpg"},
    ]


def test_a_hard_link_within_its_sample_is_kept_and_one_to_another_is_refused() -> None:
    inside = tar_of_infos([(tarfile.TarInfo("a.jpg"), b"A"), (_special("a.png", tarfile.LNKTYPE, "a.jpg"), b"")])
    assert len(records_of(read_shards(TAR, [inside]))) == 1
    outside = [
        (tarfile.TarInfo("a.jpg"), b"A"),
        (tarfile.TarInfo("b.jpg"), b"B"),
        (_special("b.png", tarfile.LNKTYPE, "a.jpg"), b""),
    ]
    with pytest.raises(ShardError, match=r"at byte 2048: hard link to 'a.jpg'.*--hard-dereference"):
        read_shards(TAR, [tar_of_infos(outside)])


def test_a_hard_link_behind_its_sample_stays_with_it_and_one_that_could_part_from_what_it_means_is_refused() -> None:
    own = [
        (tarfile.TarInfo("a.jpg"), b"A"),
        (_special("d", tarfile.DIRTYPE), b""),
        (_special("LINK", tarfile.LNKTYPE, "a.jpg"), b""),
        (tarfile.TarInfo("README"), b"read me"),
        (_special("COPY", tarfile.LNKTYPE, "README"), b""),
        (tarfile.TarInfo("b.jpg"), b"B"),
    ]
    spans = records_of(read_shards(TAR, [tar_of_infos(own)]))
    names = [[member.name for member in tarfile.open(fileobj=io.BytesIO(span))] for span in spans]
    assert names == [["a.jpg", "d", "LINK"], ["README", "COPY", "b.jpg"]]
    parting = [*own[3:4], *own[:1], *own[4:5]]
    with pytest.raises(ShardError, match="hard link to 'README'"):
        read_shards(TAR, [tar_of_infos(parting)])


def test_a_global_comment_is_kept_and_any_other_global_header_is_refused() -> None:
    commented = _with_global_header({"comment": "made by hand"}, [("a.x", b"1"), ("b.x", b"2")])
    assert b"made by hand" in records_of(read_shards(TAR, [commented]))[0]
    with pytest.raises(ShardError, match="a global header sets uname"):
        read_shards(TAR, [_with_global_header({"uname": "somebody"}, [("a.x", b"1")])])


@pytest.mark.parametrize("name", ["__key__", "__URL__"])
@pytest.mark.parametrize("other", ["b.x", "b.y"], ids=["alike", "various"])
def test_parts_with_names_that_samples_need_are_refused(name: str, other: str) -> None:
    with pytest.raises(ShardError, match="a name that WebDataset reserves"):
        samples_of(TAR, tar_of([(f"a.{name}", b"v"), ("a.x", b"1"), (f"b.{name}", b"v"), (other, b"1")]))


def test_an_archive_within_an_archive_is_no_member() -> None:
    inner = tar_of([("x.jpg", b"X" * 600), ("y.jpg", b"Y")])
    data = tar_of([("a.tar", inner), ("b.tar", inner[:1024]), ("c.txt", b"c")])
    assert [sample["__key__"] for sample in samples_of(TAR, data)] == ["a", "b", "c"]
    assert samples_of(TAR, data)[0]["tar"] == inner


def test_members_larger_than_eight_gigabytes_are_addressed_by_pax_or_base_256() -> None:
    for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        info = tarfile.TarInfo("a.bin")
        info.size = 9 << 30
        header = info.tobuf(format)
        with pytest.raises(ShardError, match=f"member claims {9 << 30} bytes"):
            TAR.scan(MemoryShard(header + bytes(1024)), 1 << 20)


@pytest.mark.parametrize("kind", [b"S", b"M", b"V", b"D"])
def test_members_that_are_no_files_of_their_own_are_refused(kind: bytes) -> None:
    with pytest.raises(ShardError, match="pack the archive again|join its volumes"):
        read_shards(TAR, [_special("a.x", kind).tobuf(tarfile.GNU_FORMAT) + bytes(1024)])


def test_a_sample_whose_members_do_not_lie_together_is_refused() -> None:
    data = tar_of([("a.jpg", b""), ("b.jpg", b""), ("a.cls", b""), ("b.cls", b"")])
    with pytest.raises(ShardError, match="at byte 1024: members of one sample do not lie together"):
        TAR.scan(MemoryShard(data), 1 << 20)


def test_a_key_may_come_back_with_the_same_parts_as_it_does_after_mixing() -> None:
    data = tar_of([("a.jpg", b"1"), ("b.jpg", b"2"), ("a.jpg", b"3")])
    assert sum(block.records for block in TAR.scan(MemoryShard(data), 1 << 20).blocks) == 3


def test_records_with_equal_keys_are_never_neighbours_in_a_shard_that_we_write() -> None:
    shards = [tar_of([(f"{n:03d}.txt", bytes([shard]) * 10) for n in range(20)]) for shard in range(6)]
    group = read_shards(TAR, shards)
    assert group.keys is not None
    for seed in range(20):
        order = keep_apart(permutation(group.records, (seed,)), group.keys)
        keys = _keys(rewritten(TAR, group, order, shards[0]))
        assert len(keys) == 120
        assert all(a != b for a, b in itertools.pairwise(keys))


def test_hashes_of_long_and_short_forms_of_one_key_are_equal() -> None:
    """A key is one key, in the header's field or in an extended header."""
    key = "k" * 90
    short, long = tar_of([(f"{key}.a", b"")]), tar_of([(f"{key}.{'b' * 80}", b"")], tarfile.PAX_FORMAT)
    keys = read_shards(TAR, [short, long]).keys
    assert keys is not None
    assert keys[0] == keys[1]


def test_scanning_in_blocks_covers_the_archive_without_a_gap() -> None:
    data = tar_of([(f"{n:04d}.bin", bytes(n * 37 % 2000)) for n in range(300)])
    blocks = TAR.scan(MemoryShard(data), 20_000).blocks
    assert blocks[0].start == 0
    assert all(a.start + a.length == b.start for a, b in itertools.pairwise(blocks))
    assert all(block.length <= 20_000 for block in blocks)
    assert sum(block.records for block in blocks) == 300
    assert not np.frombuffer(data, np.uint8)[blocks[-1].start + blocks[-1].length :].any()


def test_a_comment_that_looks_like_a_name_is_none() -> None:
    infos = [(tarfile.TarInfo(f"{n}.txt"), b"x") for n in range(3)]
    infos[1][0].pax_headers = {"comment": "the path=here size=7 GNU.sparse.map=1 linkpath=x"}
    data = tar_of_infos(infos, tarfile.PAX_FORMAT)
    assert _keys(data) == ["0", "1", "2"]
    assert b"".join(records_of(read_shards(TAR, [data]))).count(b"the path=here") == 1


def test_a_damaged_extended_header_is_refused() -> None:
    long = tar_of([("d" * 120 + ".txt", b"x")], tarfile.PAX_FORMAT)
    with pytest.raises(ShardError, match="an extended header is damaged"):
        read_shards(TAR, [long.replace(b" path=", b"?path=")])


def test_many_long_names_are_one_array() -> None:
    names = [f"{'folder/' * (n % 40)}{n:05d}.{'ä' * (n % 3)}txt" for n in range(500)]
    assert _keys(tar_of([(name, b"") for name in names], tarfile.PAX_FORMAT)) == [name.split(".")[0] for name in names]


def _extended(kind: bytes, fields: dict[str, str]) -> bytes:
    header: bytes = tarfile.TarInfo._create_pax_generic_header(fields, kind, "utf-8")  # type: ignore[attr-defined]
    return header


def _gnu_long(kind: bytes, text: str) -> bytes:
    header: bytes = tarfile.TarInfo._create_gnu_long_header(text, kind, "utf-8", "strict")  # type: ignore[attr-defined]
    return header


def _plain_member(name: str, kind: bytes, stated: int, body: bytes, format: Any) -> bytes:
    """A member whose header says so of its size; what lies behind its end in its last unit is not always zero."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, stated, "a.x" if kind in (tarfile.LNKTYPE, tarfile.SYMTYPE) else ""
    return info.tobuf(format) + body + (b" size=7\n\0path=z" * 40)[: -len(body) % 512]


UNITS = [
    _extended(b"x", {"size": "512"}),
    _extended(b"x", {"size": "0", "path": "lie.x"}),
    _extended(b"x", {"size": "99999999999"}),
    _extended(b"x", {"path": "l" * 600 + ".x", "size": "1024"}),
    _extended(b"X", {"size": "1"}),
    _extended(b"g", {"size": "512", "path": "lie.x"}),
    _gnu_long(b"L", "lie" * 50),
    _gnu_long(b"K", "lie" * 50),
    _plain_member("lie.x", tarfile.REGTYPE, 1 << 40, b"", tarfile.GNU_FORMAT),
    _plain_member("lie.x", tarfile.REGTYPE, 700, b"", tarfile.USTAR_FORMAT),
    _plain_member("lie.x", tarfile.LNKTYPE, 0, b"", tarfile.USTAR_FORMAT),
    bytes(512),
    bytes(1024),
    b"\1" * 512,
]
"""Units that mean something in the chain of headers, and nothing in a body."""
LYING = st.integers(0, len(UNITS) - 1).map(lambda unit: UNITS[unit])
SOUND_NAMES = st.sampled_from(
    ["a.x", "b.x", "d/c.y", "README", "n" * 99, "n" * 120 + ".x", "pp/" * 200 + "q.x", "\u00e4.x"]
)


@st.composite
def sound_members(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """A member in any form that programs write: long names by either way, sizes in the header or before it."""
    name, kind = draw(SOUND_NAMES), draw(st.sampled_from([b"0", b"0", b"0", b"7", b"\0", b"5", b"2", b"6"]))
    body = draw(bodies) if kind in b"07\0" else b""
    if draw(st.booleans()):
        comment = st.sampled_from(["x size=3", "12 path=y", "c" * 700, "34 GNU.sparse.map=1"])
        fields = {"comment": draw(comment)} if draw(st.booleans()) else {}
        if draw(st.booleans()):
            fields["size"] = str(len(body))
        if len(name) > 90 or draw(st.booleans()):
            fields["path"], name = name, "short.z"
        stated = draw(st.sampled_from([0, 5, 7_000, 1 << 40])) if "size" in fields else len(body)
        front = _extended(draw(st.sampled_from([b"x", b"X"])), fields) if fields else b""
        return front + _plain_member(name, kind, stated, body, tarfile.GNU_FORMAT)
    return _plain_member(name, kind, len(body), body, draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])))


def _archives(bodies: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.lists(sound_members(bodies), min_size=1, max_size=5).map(lambda members: b"".join(members) + bytes(1024))


def _cut(data: bytes, start: int, stop: int) -> bytes:
    """A part of an archive, that begins at any of its units."""
    return data[start % (len(data) // 512 + 1) * 512 :][: stop % (len(data) + 1)]


SIMPLE_BODIES = st.binary(max_size=1100) | st.lists(LYING, max_size=4).map(b"".join)
BODIES = st.recursive(
    SIMPLE_BODIES,
    lambda inner: _archives(inner) | st.builds(_cut, _archives(inner), st.integers(0, 99), st.integers(0, 99_999)),
    max_leaves=6,
)


def _members_of(data: bytes) -> list[tuple[str, bytes, int, int]]:
    """As the standard library sees them: name, kind, where the body lies and its length."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [(info.name, info.type, info.offset_data, info.size if info.isreg() else 0) for info in archive]


@settings(max_examples=200)
@given(data=_archives(BODIES))
def test_whatever_bodies_hold_an_archive_is_split_as_other_readers_split_it(data: bytes) -> None:
    archive = read_archive(np.frombuffer(data, np.uint8), Where("s", 0, len(data), last=True))
    rows = zip(archive.kind.tolist(), archive.body.tolist(), archive.size.tolist(), strict=True)
    found = [
        (archive.name(n).decode().rstrip("/"), bytes([kind]), body, size) for n, (kind, body, size) in enumerate(rows)
    ]
    assert found == _members_of(data)
    assert archive.ended


@settings(max_examples=150)
@given(bodies=st.lists(BODIES, min_size=1, max_size=4), step=st.integers(1, 9))
def test_wherever_an_archive_is_cut_for_reading_its_samples_are_the_same(bodies: list[bytes], step: int) -> None:
    """Extended headers apart from their members, and bodies that look like headers where a part begins."""
    shard = b"".join(
        _extended(b"x", {"size": str(len(body)), "path": f"{number}.x"})
        + _plain_member("z.z", tarfile.REGTYPE, 0, body, tarfile.GNU_FORMAT)
        for number, body in enumerate(bodies)
    )
    shard += bytes(1024)
    with pytest.MonkeyPatch.context() as patch:
        sizes = dict.fromkeys(("READ_BYTES", "_LEAST_PART", "STEP_BYTES"), step * 512)
        patch_everywhere(patch, "corgi2.formats.framed", **sizes)
        assert [sample["x"] for sample in samples_of(TAR, shard)] == bodies
        assert sum(table.num_rows for table in TAR.stream(MemoryShard(shard))) == len(bodies)


@pytest.mark.parametrize(
    ("front", "problem"),
    [
        (_extended(b"x", {"path": "a.x"}) + _extended(b"x", {"comment": "c"}), "a second extended header"),
        (_extended(b"x", {"size": "600"}) + _extended(b"x", {"comment": "c"}), "a second extended header"),
        (_gnu_long(b"L", "a.x") + _gnu_long(b"L", "b.x"), "a second extended header"),
        (_gnu_long(b"L", "a.x") + _extended(b"x", {"path": "b.x"}), "two names for one member"),
        (_extended(b"x", {"size": "-1"}), "gives '-1' as a size"),
        (_extended(b"x", {"size": ""}), "gives '' as a size"),
        (_extended(b"g", {"size": "600"}), "a global header sets size"),
    ],
)
def test_headers_that_readers_do_not_agree_on_are_refused(front: bytes, problem: str) -> None:
    for stated in (0, 600) if b" size=" in front else (600,):
        member = _plain_member("h.x", tarfile.REGTYPE, stated, b"b" * 600, tarfile.GNU_FORMAT)
        with pytest.raises(ShardError, match=problem):
            read_shards(TAR, [tar_of([("1.x", b"1")])[:1024] + front + member + bytes(1024)])


def test_bodies_full_of_long_extended_headers_take_no_longer_than_others() -> None:
    """Each claims all that follows: whoever reads them all reads gigabytes."""
    fake = tarfile.TarInfo("x")
    fake.type, fake.size = tarfile.XHDTYPE, 3_000_000
    body = fake.tobuf(tarfile.GNU_FORMAT) * 6000
    sized = _extended(b"x", {"size": str(len(body))}) + _plain_member("a.x", b"0", 0, body, tarfile.GNU_FORMAT)
    for data in (tar_of([("a.x", body)]), sized + bytes(1024)):
        began = time.perf_counter()
        assert len(records_of(read_shards(TAR, [data]))) == 1
        assert time.perf_counter() - began < 1


@pytest.mark.parametrize("garbage", [b"garbage!" * 64, b"?"])
def test_what_is_damaged_is_to_be_restored_not_packed_again(garbage: bytes) -> None:
    data = bytearray(tar_of([("a.x", b"x" * 512), ("b.x", b"x")]))
    data[1024 : 1024 + len(garbage)] = garbage
    with pytest.raises(ShardError, match="restore it from a copy") as caught:
        TAR.scan(MemoryShard(bytes(data)), 1 << 20)
    assert "pack the archive" not in str(caught.value)
