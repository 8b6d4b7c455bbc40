"""The end of a shuffle: the index of the new shards, once they are all there, and what lay between the passes goes."""

from collections.abc import Sequence

from corgi2.dataset import Index, load_index, make_index, merge, save_index, without
from corgi2.errors import SourceError
from corgi2.offline.job import Job
from corgi2.offline.journal import Marker
from corgi2.offline.passes import Pass
from corgi2.offline.resume import new_shards
from corgi2.records import BLOCK_BYTES, Scan


def finish(job: Job, pass_: Pass, markers: Sequence[Marker]) -> Index:
    """Write the index of the new shards, once they are all there."""
    shards = sorted(
        ((shard, pass_.lineage[marker.group]) for marker in markers for shard in marker.shards),
        key=lambda pair: pair[0].path,
    )
    there = {entry.path: entry for entry in job.target.list()}
    for shard, _ in shards:
        entry = there.get(shard.path)
        if entry is None or entry.size != shard.size:
            wrong = "is gone" if entry is None else "is not the shard that was written"
            raise SourceError(f"{job.target.url}/{shard.path}: {wrong}; {_way_out(job)}")
    schema = job.index.shards.column("schema")[0].as_py()
    scans = [
        (there[shard.path], Scan(shard.blocks, schema, shard.checksum, (tuple(numbers),) * len(shard.blocks)))
        for shard, numbers in shards
    ]
    index = make_index(job.plan.suffix, BLOCK_BYTES, scans)
    named = new_shards(job.plan, there, len(pass_.groups) * pass_.shards)
    stale = named - {shard.path for shard, _ in shards}  # of a group that has fewer records since one was replaced
    for path in [*job.journal.between(pass_.number), *sorted(stale)]:  # drawn by no group, or by one that was overtaken
        job.target.delete(path)
    save_index(job.target, _beside_others(job, index))
    return index


def _way_out(job: Job) -> str:
    """From a shard that is not what its group's marker says. What was consumed cannot be read again."""
    if job.plan.settings.in_place:
        return "what it was made of was consumed: restore it from a backup, and give the command again"
    if job.plan.settings.passes > 1:
        return "restore it, or give restart=True to discard what was written and begin anew"
    return f"delete {job.journal.pass_folder(1)}/groups there, and give the command again to make it anew"


def _beside_others(job: Job, index: Index) -> Index:
    """In place, the folder may hold other shards, which the index knows."""
    known = load_index(job.target) if job.plan.settings.in_place else None
    return index if known is None else merge(without(known, {entry.path for entry in job.index.entries}), index)
