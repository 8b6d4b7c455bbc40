"""Small sound shards to damage: each a few KB, all kinds of members, lines and columns, made in code.

A seed also tells where its integers lie, so that they can be set to extreme values; at random few bytes hit one.
"""

import io
import json
import re
import struct
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_ROWS = 24
_ROW_GROUP = 8


@dataclass(frozen=True, slots=True)
class Field:
    """An integer in a shard: its bytes and what they say."""

    start: int
    stop: int
    value: int
    header_end: int = 0
    """Parquet: where the header of the page ends that holds it; 0 in the footer."""


@dataclass(frozen=True, slots=True)
class Seed:
    """A sound shard."""

    data: bytes
    fields: tuple[Field, ...]


def seeds(kind: str) -> tuple[Seed, ...]:
    """The sound shards of a kind: tar, jsonl, parquet, arrow, feather or tfrecord."""
    makers = {
        "tar": _tars,
        "jsonl": _lines,
        "parquet": _parquets,
        "arrow": _streams,
        "feather": _files,
        "tfrecord": _frames,
    }
    return tuple(makers[kind]())


def _tars() -> Iterator[Seed]:
    for format_ in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        yield _tar_seed(_tar(format_, "", 80))
        if format_ != tarfile.USTAR_FORMAT:
            yield _tar_seed(_tar(format_, "long-" * 25, 600))
    yield _tar_seed(_tar(tarfile.PAX_FORMAT, "größe-日本語-" * 6, 30))
    yield _tar_seed(_tar(tarfile.USTAR_FORMAT, "very/deep/" * 11, 30, links=False))


def _tar(format_: int, prefix: str, size: int, links: bool = True) -> bytes:
    """Directories, links, a hard link within its record, an empty member, names without a dot, equal keys apart."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=format_, pax_headers={"comment": "x"}) as archive:
        archive.addfile(_member(f"{prefix}folder", tarfile.DIRTYPE))
        for number in (0, 1, 2, 0):
            for part in ("bin", "Cls", "json"):
                member = _member(f"{prefix}{number:04}.{part}", size=size if part == "bin" else number)
                archive.addfile(member, io.BytesIO(bytes(range(256)) * 4))
        if links:  # ustar has no room for the target of a long one
            archive.addfile(_member(f"{prefix}0000.copy", tarfile.LNKTYPE, link=f"{prefix}0000.bin"))
        archive.addfile(_member(f"{prefix}README", size=3), io.BytesIO(b"abc"))
        archive.addfile(_member(f"{prefix}pointer.txt", tarfile.SYMTYPE, link="elsewhere"))
    body = sink.getvalue().rstrip(b"\0")
    return body + bytes(-len(body) % 512 + 1024)


def _member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, size, link
    return member


def _tar_seed(data: bytes) -> Seed:
    """A header's numbers: mode, size, checksum, kind."""
    heads = [at for at in range(0, len(data), 512) if data[at + 257 : at + 262] == b"ustar"]
    fields = [
        Field(at + first, at + last, _octal(data[at + first : at + last]))
        for at in heads
        for first, last in ((100, 108), (124, 136), (148, 156), (156, 157))
    ]
    return Seed(data, tuple(fields))


def _octal(text: bytes) -> int:
    digits = text.rstrip(b"\0 ")
    return int(digits, 8) if digits.isdigit() else -1


def _lines() -> Iterator[Seed]:
    records: list[Any] = [
        {"id": number, "text": "wörter " * number, "nested": {"a": [number, -1.5e300, None, True]}}
        for number in range(12)
    ]
    values: list[Any] = [0, -1, "text", None, [1, [2, [3]]], {}, 1e9, float("nan")]
    for text in (
        "".join(json.dumps(record) + "\n" for record in records),
        "".join(json.dumps(record, ensure_ascii=False) + "\r\n" for record in records),
        "\n\n" + "\n \t\n".join(json.dumps(record) for record in records),
        "".join(json.dumps(value) + "\n" for value in values),
        '{"only": "one"}',
    ):
        data = text.encode()
        numbers = re.finditer(rb"-?\d+", data)
        yield Seed(data, tuple(Field(*match.span(), int(match[0])) for match in numbers))


def _frames() -> Iterator[Seed]:
    """Records of all sizes, empty ones included; Examples; one record alone."""
    for bodies in (
        [bytes(range(size % 256)) * (1 + size // 256) for size in (0, 1, 3, 4, 8, 100, 255, 700, 2_000)],
        [_example(number) for number in range(12)],
        [b"", b"", b""],
        [b"alone" * 600],
    ):
        data, fields = bytearray(), list[Field]()
        for body in bodies:
            fields.append(Field(len(data), len(data) + 8, len(body)))
            data += framed(body)
        yield Seed(bytes(data), tuple(fields))


def framed(body: bytes) -> bytes:
    """A TFRecord frame."""
    length = struct.pack("<Q", len(body))
    return length + masked_crc(length) + body + masked_crc(body)


def bodies_of(data: bytes) -> Iterator[bytes]:
    """The bodies of TFRecord frames, as the format's definition reads them."""
    at = 0
    while at < len(data):
        stop = at + 12 + int.from_bytes(data[at : at + 8], "little")
        if framed(data[at + 12 : stop]) != data[at : stop + 4]:
            raise ValueError(f"the frame at byte {at} is damaged")
        yield data[at + 12 : stop]
        at = stop + 4


def masked_crc(data: bytes | bytearray) -> bytes:
    """A checksum as TFRecord stores it, byte by byte, as its definition says."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc_of_byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_CRC = [_crc_of_byte(value) for value in range(256)]


def _example(number: int) -> bytes:
    """A `tf.train.Example` with bytes, floats and integers, packed and one by one."""
    features = {
        "image": field_of(1, field_of(1, bytes([number]) * number * 30)),
        "texts": field_of(1, field_of(1, b"a") + field_of(1, b"")),
        "floats": field_of(2, field_of(1, struct.pack("<3f", 0.5, -1, number))),
        "one": field_of(2, b"\x0d" + struct.pack("<f", number)),
        "label": field_of(3, field_of(1, b"\x05" if number % 2 else b"\xff" * 9 + b"\x01")),
        "several": field_of(3, b"\x08\x01\x08\xac\x02"),
        "none": b"",
    }
    return features_of(features)


def example_of(values: Mapping[str, bytes | int]) -> bytes:
    """A `tf.train.Example` of bytes and of integers from 0 to 127."""
    return features_of(
        {
            name: field_of(1, field_of(1, value))
            if isinstance(value, bytes)
            else field_of(3, field_of(1, bytes([value])))
            for name, value in values.items()
        }
    )


def features_of(features: Mapping[str, bytes]) -> bytes:
    """An Example of these features."""
    entries = (field_of(1, name.encode()) + field_of(2, value) for name, value in features.items())
    return field_of(1, b"".join(field_of(1, entry) for entry in entries))


def field_of(number: int, value: bytes) -> bytes:
    """A field of a message whose value has a length."""
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    text = bytearray()
    while value > 127:
        text.append(value & 127 | 128)
        value >>= 7
    return bytes([*text, value])


def _parquets() -> Iterator[Seed]:
    options: tuple[dict[str, Any], ...] = (
        {"compression": "snappy"},
        {"compression": "zstd", "use_dictionary": False, "data_page_version": "2.0"},
        {"compression": "none", "store_schema": False, "write_statistics": False},
        {"compression": "gzip", "write_page_index": True},
        {"compression": "lz4", "use_dictionary": False, "store_schema": False, "write_page_checksum": True},
        {"compression": "brotli", "use_deprecated_int96_timestamps": True},
    )
    for number, table in enumerate((_flat(), _nested(), _timed())):
        for option in options[number::2]:
            yield _parquet_seed(table, option)
    deltas = {"i": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY", "f": "BYTE_STREAM_SPLIT"}
    plain = _flat().select(["i", "s", "f"])
    yield _parquet_seed(plain, {"compression": "none", "use_dictionary": False, "column_encoding": deltas})


def _flat() -> pa.Table:
    numbers = range(_ROWS)
    return pa.table(
        {
            "i": pa.array(numbers, pa.int64()),
            "f": pa.array([number / 3 for number in numbers], pa.float64()),
            "s": pa.array([f"text {number}" * (number % 4) for number in numbers]),
            "n": pa.array([None if number % 3 else number for number in numbers], pa.int32()),
            "b": pa.array([bytes([number]) * 20 for number in numbers], pa.binary()),
        }
    ).replace_schema_metadata({"author": "nobody"})


def _nested() -> pa.Table:
    numbers = range(_ROWS)
    return pa.table(
        {
            "list": pa.array(
                [[*range(number % 5)] if number % 4 else None for number in numbers], pa.list_(pa.int16())
            ),
            "struct": pa.array([{"a": number, "b": {"c": str(number)}} for number in numbers]),
            "map": pa.array([[("k", number)] for number in numbers], pa.map_(pa.string(), pa.int64())),
            "fixed": pa.array([[number, 2.0] for number in numbers], pa.list_(pa.float32(), 2)),
            "deep": pa.array([[[[number]], []] for number in numbers]),
        }
    )


def _timed() -> pa.Table:
    numbers = range(_ROWS)
    words = pa.array([("red", "green", None)[number % 3] for number in numbers])
    return pa.table(
        {
            "word": words.dictionary_encode(),
            "time": pa.array([number * 10**9 for number in numbers], pa.timestamp("us", "UTC")),
            "day": pa.array(numbers, pa.int32()).cast(pa.date32()),
            "money": pa.array([Decimal(number) / 100 for number in numbers], pa.decimal128(12, 2)),
            "flag": pa.array([number % 2 == 0 for number in numbers]),
            "hash": pa.array([bytes([number]) * 16 for number in numbers], pa.binary(16)),
            "half": pa.array(numbers, pa.uint8()),
        }
    )


def _parquet_seed(table: pa.Table, options: dict[str, Any]) -> Seed:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=_ROW_GROUP, **options)
    data = sink.getvalue()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    fields = _Thrift(data, footer).struct()
    for header in _page_headers(pq.read_metadata(io.BytesIO(data))):
        thrift = _Thrift(data, header)
        found = thrift.struct()
        fields += [replace(field, header_end=thrift.at) for field in found]
    return Seed(data, tuple(fields))


def _page_headers(footer: pq.FileMetaData) -> Iterator[int]:
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            column = footer.row_group(group).column(number)
            yield column.data_page_offset
            if column.has_dictionary_page:
                yield column.dictionary_page_offset


def _streams() -> Iterator[Seed]:
    for table in (_flat(), _nested(), _timed()):
        for codec in (None, "lz4", "zstd"):
            yield _arrow_seed(table, pa.ipc.new_stream, codec)
    yield _arrow_seed(_grown(), pa.ipc.new_stream, None)
    yield _arrow_seed(_flat(), pa.ipc.new_file, None)


def _files() -> Iterator[Seed]:
    for table in (_flat(), _nested(), _timed(), _grown()):
        for codec in (None, "lz4", "zstd"):
            yield _arrow_seed(table, pa.ipc.new_file, codec)


def _grown() -> pa.Table:
    """A dictionary that grows from batch to batch, and one in lists."""
    parts = [
        pa.table(
            {
                "word": pa.DictionaryArray.from_arrays([0, number - 1, None], [f"word {n}" for n in range(number)]),
                "list": pa.array([["a"], [], None], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
            }
        )
        for number in (1, 2, 4)
    ]
    return pa.concat_tables(parts)


def _arrow_seed(table: pa.Table, new: Any, codec: str | None) -> Seed:
    """All numbers of the headers, and of the footer: words of four and eight bytes, whatever they say."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=True)
    with new(sink, table.schema, options=options) as writer:
        writer.write_table(table, _ROW_GROUP)
    data = bytes(sink.getvalue())
    spans = [match.start() for match in re.finditer(b"\xff\xff\xff\xff", data) if match.start() % 8 == 0]
    heads = [(at, at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")) for at in spans]
    if data.startswith(b"ARROW1"):
        heads.append((len(data) - 10 - int.from_bytes(data[-10:-6], "little"), len(data) - 6))
    words = {(at, at + size) for first, last in heads for size in (4, 8) for at in range(first, last - size + 1, size)}
    bodies = {(last, last + 8) for _, last in heads if codec and last + 8 < len(data)}
    fields = [
        Field(*word, int.from_bytes(data[slice(*word)], "little", signed=True)) for word in sorted(words | bodies)
    ]
    return Seed(data, tuple(field for field in fields if field.value))


class _Thrift:
    """Walks a structure in Thrift's compact protocol and notes its integers."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self.at = data, at

    def struct(self) -> list[Field]:
        fields: list[Field] = []
        while (head := self._byte()) != 0:
            if not head >> 4:
                self._varint()
            if head & 15 > 2:  # a boolean's value is its type
                fields += self._value(head & 15)
        return fields

    def _value(self, kind: int) -> list[Field]:
        start = self.at
        if kind in (1, 2, 3):
            self.at += 1
        elif kind in (4, 5, 6):
            value = self._varint()
            return [Field(start, self.at, (value >> 1) ^ -(value & 1))]
        elif kind == 7:
            self.at += 8
        elif kind == 8:
            length = self._varint()
            self.at += length
        else:
            return self.struct() if kind == 12 else self._list()
        return []

    def _list(self) -> list[Field]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        return [field for _ in range(count) for field in self._value(head & 15)]

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
