"""JSON lines: bytes untouched; blank lines, CRLF and a last line without a newline by the rules of docs/formats.md."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2.errors import ShardError
from tests.shards import JSONL, MemoryShard, read_shards, records_of, rewritten, samples_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
LINES = st.tuples(
    VALUES.map(json.dumps).map(str.encode), st.sampled_from([b"\n", b"\r\n", b" \n", b"\n\n", b"\n \t\r\n"])
)


@given(st.lists(LINES, min_size=1, max_size=20), st.sampled_from([b"", b"\n", b" \r\n"]))
def test_every_byte_belongs_to_one_record_and_records_parse(lines: list[tuple[bytes, bytes]], front: bytes) -> None:
    data = front + b"".join(text + end for text, end in lines)
    group = read_shards(JSONL, [data])
    assert b"".join(records_of(group)) == data
    assert [json.loads(text) for text, _ in lines] == samples_of(JSONL, data)


def test_crlf_stays_crlf() -> None:
    data = b'{"a":1}\r\n{"a":2}\r\n'
    assert rewritten(JSONL, read_shards(JSONL, [data]), [1, 0], data) == b'{"a":2}\r\n{"a":1}\r\n'


def test_a_last_line_without_a_newline_gets_one() -> None:
    data = b'{"a":1}\n{"a":2}'
    assert (
        rewritten(JSONL, read_shards(JSONL, [data, data]), [3, 1, 0, 2], data)
        == b'{"a":2}\n{"a":2}\n{"a":1}\n{"a":1}\n'
    )


def test_blank_lines_are_no_records_and_travel_with_the_next_line() -> None:
    data = b'\n\n{"a":1}\n \n{"a":2}\n\n\r\n'
    assert records_of(read_shards(JSONL, [data])) == [b'\n\n{"a":1}\n', b' \n{"a":2}\n\n\r\n']


def test_a_shard_that_was_cut_short_is_refused_at_its_last_line() -> None:
    with pytest.raises(ShardError, match=r"at byte 8: the last line has no newline and is not whole JSON"):
        read_shards(JSONL, [b'{"a":1}\n{"a":'])


def test_pretty_printed_json_is_refused_with_a_way_out() -> None:
    with pytest.raises(ShardError, match=r"no JSON value.*jq -c"):
        JSONL.scan(MemoryShard(b'{\n  "a": 1\n}\n'), 1 << 20)


def test_a_byte_order_mark_is_refused() -> None:
    with pytest.raises(ShardError, match="byte-order mark"):
        JSONL.scan(MemoryShard(b'\xef\xbb\xbf{"a":1}\n'), 1 << 20)


def test_a_line_that_is_no_json_is_named_when_it_is_decoded() -> None:
    with pytest.raises(ShardError, match=r"at byte 8: .*is not JSON"):
        samples_of(JSONL, b'{"a":1}\n{"a"}\n')
