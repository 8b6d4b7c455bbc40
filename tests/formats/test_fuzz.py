"""Damaged shards meet clear errors and nothing else. ``make fuzz`` runs thirty times as many."""

import shlex
import sys
from collections.abc import Iterator

import pytest
from benchmarks import fuzz as program
from benchmarks.fuzz import ARENA_BYTES, SUFFIXES, Failure, fuzz, run_case, shard_of, shares
from hypothesis import given
from hypothesis import strategies as st

from corgi2.records.arena import Arena


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_shards_are_refused_clearly_in_bounded_memory(suffix: str) -> None:
    tally = fuzz(suffix, seed=0, count=5_000, memory=2_000_000_000)
    assert not tally.kinds
    assert tally.refused > 1_000
    assert tally.passed > 100


@pytest.mark.parametrize(("suffix", "seed", "case"), [(".arrow", 20261118, 16656), (".feather", 20261118, 37981)])
def test_what_a_mutant_once_showed_is_refused_clearly(suffix: str, seed: int, case: int) -> None:
    """A decimal whose scale Python refuses; a shard whose batches have no rows."""
    assert not run_case(shard_of(suffix, seed, case), suffix, Arena(ARENA_BYTES), case)


@pytest.mark.parametrize(("suffix", "seed", "case"), [(".parquet", 20261118, 104085), (".parquet", 20261118, 50666)])
def test_what_a_mutant_once_broke_stays_whole(suffix: str, seed: int, case: int) -> None:
    """Hadoop's LZ4, which Arrow reads and calls unknown; a footer that ends the process when Arrow writes it again."""
    assert run_case(shard_of(suffix, seed, case), suffix, Arena(ARENA_BYTES), case)


@given(st.integers(0, 10**7))
def test_every_format_gets_its_share_of_the_mutants(count: int) -> None:
    dealt = shares(count, SUFFIXES)
    assert set(dealt) == set(SUFFIXES)
    assert sum(dealt.values()) == count
    assert max(dealt.values()) - min(dealt.values()) <= 1


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failure_prints_the_command_that_repeats_its_mutant(
    suffix: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> Iterator[Failure]:
        arguments[-1][0] = 100  # type: ignore[index]
        yield Failure(17, "a crash", "the process ended")

    repeated = list[tuple[object, ...]]()
    monkeypatch.setattr(program, "_run_worker", fail)
    assert fuzz(suffix, seed=3, count=100, memory=10**9).kinds == {"a crash": 1}
    command = capsys.readouterr().out.partition("again: ")[2]
    monkeypatch.setattr(sys, "argv", shlex.split(command)[2:])
    monkeypatch.setattr(program, "repeat", lambda *arguments: repeated.append(arguments))
    program.main()
    assert repeated == [(suffix, 3, 17, None)]
    assert shard_of(suffix, 3, 17) == shard_of(suffix, 3, 17) != shard_of(suffix, 4, 17)
