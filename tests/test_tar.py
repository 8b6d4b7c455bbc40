"""WebDataset tars: which bytes make a record, and what is refused. The rules are in docs/formats.md."""

import io
import itertools
import tarfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import webdataset
from hypothesis import given, settings
from hypothesis import strategies as st

from corgi2.errors import ShardError
from corgi2.plan import keep_apart, permutation
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
    with pytest.raises(ShardError, match="a name that WebDataset keeps for itself"):
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
