"""The files beside shards that ``datasets.Dataset.save_to_disk`` writes, and ``load_from_disk`` needs.

``state.json`` lists the shards, and has a fingerprint by which results are cached: new shards get another one.
``dataset_info.json`` counts the examples of each split.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from corgi2.formats.format import Described

_INFO, _STATE = "dataset_info.json", "state.json"
_FILES, _INDICES, _FINGERPRINT = "_data_files", "_indices_data_files", "_fingerprint"


class SavedDataset:
    """What ``save_to_disk`` writes. A folder without ``state.json`` is none of its own."""

    names = (_INFO, _STATE)

    def problem(self, old: Mapping[str, bytes], shards: Collection[str] | None) -> str | None:
        if _STATE not in old:
            return f"lies there without {_STATE}: it describes a cache of datasets, and would go stale"
        try:
            state, _ = _decoded(old)
            listed = {each["filename"] for each in state[_FILES]}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return f"cannot be read as {_STATE} of datasets ({error})"
        if state.get(_INDICES):
            return "holds a selection of rows by indices, which mixing would break; save the data set again"
        if shards is not None and listed != set(shards):
            other = min(listed ^ set(shards))
            return f"lists other shards than are shuffled, such as {other}; name the folder, with all of them"
        return None

    def rebuilt(self, old: Mapping[str, bytes], shards: Sequence[Described]) -> dict[str, bytes]:
        state, info = _decoded(old)
        state[_FILES] = [{"filename": shard.path} for shard in shards]
        state[_FINGERPRINT] = _fingerprint(str(state.get(_FINGERPRINT)), shards)
        _count(info, state.get("_split"), shards)
        written = {_INFO: info, _STATE: state}
        return {name: json.dumps(written[name], indent=2).encode() for name in self.names if name in old}


def _decoded(old: Mapping[str, bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    state, info = (json.loads(old.get(name, b"{}")) for name in (_STATE, _INFO))
    if not isinstance(state, dict) or not isinstance(info, dict):
        raise TypeError("not an object")
    return state, info


def _fingerprint(old: str, shards: Sequence[Described]) -> str:
    """The same for the same shards, in the form that datasets gives to its own."""
    state = hashlib.sha256(old.encode())
    for shard in shards:
        state.update(f"{shard.path}\0{shard.size}\0".encode() + shard.checksum)
    return state.hexdigest()[:16]


def _count(info: dict[str, Any], split: str | None, shards: Sequence[Described]) -> None:
    """Examples of the split, if it was counted; bytes in proportion."""
    counted = (info.get("splits") or {}).get(split)
    if not isinstance(counted, dict) or "num_examples" not in counted:
        return
    before, now = int(counted["num_examples"]), sum(shard.records for shard in shards)
    counted["num_examples"] = now
    if "shard_lengths" in counted:
        counted["shard_lengths"] = [shard.records for shard in shards]
    if before != now and before and "num_bytes" in counted:
        counted["num_bytes"] = int(counted["num_bytes"]) * now // before
        sizes = [each.get("num_bytes", 0) for each in info["splits"].values()]
        info["dataset_size"] = sum(sizes)
