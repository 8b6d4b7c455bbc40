"""TFRecord: both checksums of every record, names that only number, Examples without TensorFlow, reference readers."""

import gzip
import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.corpus import bodies_of, features_of, field_of, framed, masked_crc, seeds, varint
from benchmarks.formats import frames_of
from hypothesis import given, settings
from hypothesis import strategies as st

import corgi2
from corgi2.dataset.source import find_source
from corgi2.errors import ShardError, SourceError
from corgi2.formats.registry import is_only_numbered, suffix_of, without_total
from corgi2.formats.tfrecord.crc32c import FOLDS, crc32c, crc32c_of_lanes, masked_crc32c
from corgi2.formats.tfrecord.example import decode_example
from corgi2.records.arena import Arena
from tests.shards import TFRECORD, MemoryShard, read_shards, records_of, samples_of

BODIES = st.lists(st.binary(max_size=1500), min_size=1, max_size=12)
EXAMPLES = seeds("tfrecord")[1].data


def _folder(place: Path, shards: int = 4, count: int = 30, name: str = "train-{:05d}.tfrecord") -> Path:
    place.mkdir()
    for shard in range(shards):
        bodies = [b"%d %d " % (shard, number) * (number + 1) for number in range(count)]
        (place / name.format(shard)).write_bytes(b"".join(map(framed, bodies)))
    return place


def _bodies(place: Path) -> Counter[bytes]:
    return Counter(body for path in place.iterdir() if path.is_file() for body in bodies_of(path.read_bytes()))


def test_the_folds_are_multiples_of_castagnolis_polynomial() -> None:
    for degree, others in FOLDS:
        total = sum(1 << exponent for exponent in (degree, *others))
        while total.bit_length() > 32:
            total ^= 0x11EDC6F41 << (total.bit_length() - 33)
        assert total == 0
        assert 2 * max(others) <= degree


def test_the_checksum_is_the_one_that_the_standards_name() -> None:
    """RFC 3720, appendix B.4."""
    for data, crc in (
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
    ):
        assert crc32c(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)])).tolist() == [crc]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(8, 3_000) | st.integers(30_000, 90_000),
    cuts=st.lists(st.floats(0, 1), min_size=2, max_size=12),
)
def test_checksums_of_many_ranges_are_those_of_each(seed: int, size: int, cuts: list[float]) -> None:
    data = np.frombuffer(random.Random(seed).randbytes(size), np.uint8)
    places = sorted(int(cut * size) for cut in cuts)
    start, stop = np.array(places[:-1]), np.array(places[1:])
    expected = [masked_crc(data[first:last].tobytes()) for first, last in zip(start, stop, strict=True)]
    assert [word.tobytes() for word in masked_crc32c(data, start, stop)] == expected
    assert crc32c_of_lanes(data, start, stop).tolist() == crc32c(data, start, stop).tolist()


def test_the_frames_of_the_benchmark_are_those_of_the_definition() -> None:
    bodies = [bytes(range(size % 256)) for size in range(400)]
    assert frames_of(bodies) == b"".join(map(framed, bodies))


@given(bodies=BODIES, where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_of_a_shard_is_refused(bodies: list[bytes], where: float, bit: int) -> None:
    data = bytearray(b"".join(map(framed, bodies)))
    data[int(where * len(data))] ^= 1 << bit
    with pytest.raises(ShardError, match="checksum|cut short"):
        TFRECORD.scan(MemoryShard(bytes(data)), 1000)
    with pytest.raises(ShardError, match="checksum|cut short"):
        read_shards(TFRECORD, [bytes(data)])


@given(bodies=BODIES, keep=st.floats(0, 1, exclude_max=True))
def test_a_shard_that_was_cut_short_is_refused_unless_it_ends_with_a_record(bodies: list[bytes], keep: float) -> None:
    data = b"".join(map(framed, bodies))
    ends = np.cumsum([len(framed(body)) for body in bodies]).tolist()
    short = data[: int(keep * len(data))]
    if len(short) in ends:
        assert read_shards(TFRECORD, [short]).records == ends.index(len(short)) + 1
    else:
        with pytest.raises(ShardError):
            TFRECORD.scan(MemoryShard(short), 1000)


@pytest.mark.parametrize("length", [10**9, 2**40, 2**63, 2**64 - 1])
def test_a_lying_length_with_the_right_checksum_is_refused_before_memory_is_taken(length: int) -> None:
    head = struct.pack("<Q", length)
    data = framed(b"one") + head + masked_crc(head) + b"two"
    with pytest.raises(
        ShardError, match=r"byte 19: a record of [\d,]+ bytes, of which 15 are there: the shard was cut"
    ):
        TFRECORD.scan(MemoryShard(data), 1000)
    for task in (lambda: read_shards(TFRECORD, [data]), lambda: list(TFRECORD.stream(MemoryShard(data), 8_000_000))):
        with pytest.raises(ShardError, match="cut short"):
            task()


def test_a_file_of_another_kind_is_refused_with_the_reason() -> None:
    for data, reason in (
        (gzip.compress(framed(b"x")), "it is compressed with gzip, so name it .tfrecord.gz"),
        (b"just some text in a file", "is the file's name right?"),
    ):
        with pytest.raises(ShardError, match="not a TFRecord file: the length of the first frame fails") as caught:
            TFRECORD.scan(MemoryShard(data), 1000)
        assert reason in str(caught.value)


@given(pieces=st.lists(BODIES, min_size=2, max_size=4), data=st.data())
def test_pieces_side_by_side_are_split_as_each_alone(pieces: list[list[bytes]], data: st.DataObject) -> None:
    shards = [b"".join(map(framed, bodies)) for bodies in pieces]
    together = TFRECORD.scan_together([MemoryShard(shard) for shard in shards], 1000, 1 << 26)
    assert together == [TFRECORD.scan(MemoryShard(shard), 1000) for shard in shards]
    spoiled = bytearray(shards[1])
    spoiled[data.draw(st.integers(0, len(spoiled) - 1))] ^= 1
    assert TFRECORD.scan_together([MemoryShard(shards[0]), MemoryShard(bytes(spoiled))], 1000, 1 << 26) is None


@pytest.mark.parametrize(
    "way", [{}, {"passes": 2}, {"range_size": "2KB"}], ids=["one pass", "two passes", "ranges through the index"]
)
def test_a_shuffle_keeps_every_record_bit_for_bit(way: dict[str, Any], tmp_path: Path) -> None:
    source, target = _folder(tmp_path / "in"), tmp_path / "out"
    if "range_size" in way:
        corgi2.index(source)
    corgi2.shuffle(source, target, buffer="64MB", seed=1, **way)
    assert _bodies(target) == _bodies(source)
    assert corgi2.verify(source, target).same
    assert all(path.suffix == ".tfrecord" for path in target.iterdir() if path.is_file())


def test_in_place_and_compressed_shards_keep_every_record(tmp_path: Path) -> None:
    source = _folder(tmp_path / "in")
    before = _bodies(source)
    corgi2.shuffle(source, in_place=True, buffer="64MB")
    assert _bodies(source) == before
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in source.glob("*.tfrecord"):
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    corgi2.shuffle(packed, tmp_path / "out", buffer="64MB")
    found = [body for path in (tmp_path / "out").glob("*.gz") for body in bodies_of(gzip.decompress(path.read_bytes()))]
    assert Counter(found) == before


def test_names_with_the_number_of_all_shards_have_the_suffix_before_it() -> None:
    assert suffix_of("c4/train.tfrecord-00003-of-01024") == ".tfrecord"
    assert suffix_of("c4/train.TFRECORDS-00003-of-01024") == ".tfrecords"
    assert suffix_of("train-00003-of-01024") == ".tfrecord"
    assert suffix_of("train.array_record-00003-of-01024") is None
    assert suffix_of("train-00003-of-01024.parquet") == ".parquet"
    assert suffix_of("train-3") is None
    assert [is_only_numbered(name) for name in ("a.b/x-00000-of-00001", "x.y-00000-of-00001")] == [True, False]
    assert without_total("a/x.tfrecord-00003-of-01024") == without_total("a/x-00003-of-01024") == "a/x-00003"
    assert without_total("x-00003-of-01024.parquet") == "x-00003-of-01024.parquet"


@pytest.mark.parametrize("name", ["train-{:05d}-of-00004", "train.tfrecord-{:05d}-of-00004"])
def test_shards_that_are_only_numbered_are_recognised_by_what_they_hold(name: str, tmp_path: Path) -> None:
    source = _folder(tmp_path / "in", name=name)
    (source / "README").write_text("about")
    assert len(find_source(source).entries) == 4
    corgi2.shuffle(source, tmp_path / "out", buffer="64MB")
    names = sorted(path.name for path in (tmp_path / "out").glob("t*"))
    assert names[0] == "train-000000.tfrecord"
    assert corgi2.verify(source, tmp_path / "out").same


def test_numbered_files_that_hold_something_else_are_no_shards(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"output-{number:05d}-of-00003").write_text("lines of text, as Beam writes them\n")
    with pytest.raises(SourceError, match="there is no shard; 3 other files, such as output-00000-of-00003"):
        find_source(tmp_path)
    (tmp_path / "data-00000-of-00001").write_bytes(framed(b"x"))
    found = find_source(tmp_path)
    assert [entry.path for entry in found.entries] == ["data-00000-of-00001"]
    assert found.others == ("output-00000-of-00003", "output-00001-of-00003", "output-00002-of-00003")


def test_splits_that_are_only_numbered_are_told_apart(tmp_path: Path) -> None:
    _folder(tmp_path / "in", 3, 2, "train-{:05d}-of-00003")
    for path in list((tmp_path / "in").iterdir()):
        path.with_name(path.name.replace("train", "validation")).write_bytes(path.read_bytes() + framed(b"more"))
    with pytest.raises(SourceError, match="several splits lie together") as caught:
        find_source(tmp_path / "in")
    assert f"{tmp_path}/in/train-*" in str(caught.value)
    assert len(find_source(f"{tmp_path}/in/train-*").entries) == 3


def test_samples_are_examples_decoded_or_bytes_as_the_content_says(tmp_path: Path) -> None:
    samples = samples_of(TFRECORD, EXAMPLES)
    assert [sample["label"] for sample in samples[:2]] == [-1, 5]
    sample = samples[3]
    assert sample["image"] == bytes([3]) * 90
    assert sample["texts"] == [b"a", b""]
    assert sample["floats"].tolist() == [0.5, -1, 3]
    assert sample["floats"].dtype == np.float32
    assert (sample["one"], sample["several"].tolist(), sample["none"]) == (3.0, [1, 300], [])
    assert samples_of(TFRECORD, framed(b"anything") + framed(b"")) == [b"anything", b""]  # type: ignore[comparison-overlap]
    (tmp_path / "a.tfrecord").write_bytes(EXAMPLES)
    (batch,) = corgi2.Loader(tmp_path, buffer="64MB", batch_size=12)
    assert batch["floats"].shape == (12, 3)
    assert sorted(batch["label"].tolist()) == [-1] * 6 + [5] * 6
    assert len(batch["image"]) == 12


def test_batches_of_other_records_have_one_column_of_bytes(tmp_path: Path) -> None:
    source = _folder(tmp_path / "in")
    batches = list(corgi2.Loader(source, buffer="64MB", batch_size=10))
    assert {*batches[0]} == {"value"}
    assert Counter(body for batch in batches for body in batch["value"]) == _bodies(source)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.booleans())
def test_integers_of_all_sizes_are_read_packed_or_one_by_one(numbers: list[int], packed: bool) -> None:
    texts = [varint(number % 2**64) for number in numbers]
    body = field_of(1, b"".join(texts)) if packed else b"".join(b"\x08" + text for text in texts)
    data = features_of({"n": field_of(3, body)})
    found = decode_example(data, 0, len(data))
    assert found is not None
    assert np.atleast_1d(found["n"]).tolist() == numbers


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"\n" + bytes([len(tail)]) + tail))
def test_no_bytes_are_too_odd_to_be_looked_at(data: bytes) -> None:
    found = decode_example(data, 0, len(data))
    assert found is None or len(found) > 0


@pytest.mark.parametrize("cut", [1, 5, 50])
def test_a_part_of_an_example_is_bytes(cut: int) -> None:
    body = next(bodies_of(EXAMPLES))
    assert decode_example(body, 0, len(body)) is not None
    assert decode_example(body[:-cut], 0, len(body) - cut) is None
    assert decode_example(body + bytes(cut), 0, len(body) + cut) is None


def test_the_index_proves_blocks_whose_checksums_were_checked_once() -> None:
    shard = MemoryShard(b"".join(framed(bytes([number]) * 500) for number in range(100)))
    blocks = TFRECORD.scan(shard, 5_000).blocks
    assert len(blocks) > 5
    assert sum(block.records for block in blocks) == 100
    assert records_of(TFRECORD.read([shard.piece()], Arena(1 << 22)))[7] == framed(bytes([7]) * 500)


def test_the_tfrecord_package_reads_what_we_write_and_we_read_what_it_writes(tmp_path: Path) -> None:
    tfrecord = pytest.importorskip("tfrecord", reason="the tfrecord package is not installed")
    (tmp_path / "in").mkdir()
    for shard in range(3):
        writer = tfrecord.TFRecordWriter(str(tmp_path / "in" / f"train-{shard}.tfrecord"))
        for number in range(20):
            writer.write(
                {"id": (100 * shard + number, "int"), "x": ([0.5, number], "float"), "b": (b"%d" % number, "byte")}
            )
        writer.close()
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", buffer="64MB")
    found = [
        int(sample["id"][0])
        for path in sorted((tmp_path / "out").glob("*.tfrecord"))
        for sample in tfrecord.tfrecord_loader(str(path), None, {"id": "int", "x": "float", "b": "byte"})
    ]
    ours = [sample["id"] for sample in corgi2.Loader(tmp_path / "in", buffer="64MB")]
    assert sorted(found) == sorted(ours) == [100 * shard + number for shard in range(3) for number in range(20)]
