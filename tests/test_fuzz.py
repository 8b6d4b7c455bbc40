"""Damaged shards meet clear errors and nothing else. ``make fuzz`` runs twenty times as many."""

import pytest
from benchmarks.fuzz import SUFFIXES, fuzz


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_shards_are_refused_clearly_in_bounded_memory(suffix: str) -> None:
    tally = fuzz(suffix, seed=0, count=5_000, memory=2_000_000_000)
    assert not tally.kinds
    assert tally.refused > 1_000
    assert tally.passed > 100
