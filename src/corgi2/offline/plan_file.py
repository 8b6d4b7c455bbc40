"""A shuffle's plan as its target keeps it: read, and written once by the first run of all that begin."""

import hashlib
import time
from dataclasses import replace

from corgi2.dataset import Index, decode_index, encode_index
from corgi2.errors import SourceError
from corgi2.offline.journal import Journal
from corgi2.offline.plan import Plan
from corgi2.offline.planned import Shuffle
from corgi2.stores import read_path

START_ANEW = "restart=True discards what was written and begins anew"

_SETTLE_SECONDS = 1.0
"""If a store ignores conditions on writes: after this time, no plan replaces another any more."""


def load_plan(journal: Journal) -> tuple[Plan, Index] | None:
    """What an earlier run has planned."""
    if journal.store.head(journal.plan_path) is None:  # if a server ignores conditions, the later it is read the better
        return None
    plan, url = read_plan(journal), journal.store.url
    path = journal.source_path(plan.blocks_sha256)
    data = read_path(journal.store, path) or bytearray()
    if hashlib.sha256(data).hexdigest() != plan.blocks_sha256:
        raise SourceError(f"{url}/{path}: is not what the plan was made for", hint=START_ANEW)
    return plan, decode_index(data, f"{url}/{path}")


def read_plan(journal: Journal) -> Plan:
    name, data = f"{journal.store.url}/{journal.plan_path}", read_path(journal.store, journal.plan_path)
    if data is None:
        raise SourceError(f"{name}: has just been deleted; run the command again")
    return Plan.decode(data, name)


def commit_plan(shuffle: Shuffle) -> Shuffle:
    """The first to create the plan decides; all others must have made the same plan, and take its key."""
    journal = shuffle.journal
    if shuffle.replaced:
        journal.write_replaced(shuffle.replaced)
    if shuffle.is_begun:
        found = read_plan(journal)  # perhaps replaced, if a store lets several begin at once
        return replace(shuffle, plan=found) if found.equals(shuffle.plan) else shuffle
    source_path = journal.source_path(shuffle.plan.blocks_sha256)
    journal.store.publish(source_path, [encode_index(shuffle.index)])
    data = shuffle.plan.encode()
    if journal.store.create(journal.plan_path, data) and journal.store.create(journal.plan_path, data):
        time.sleep(_SETTLE_SECONDS)  # the store took both: the last one of all that begin now counts for each of them
    held = load_plan(journal)
    if held is None or not held[0].equals(shuffle.plan):
        if held is not None and held[0].blocks_sha256 != shuffle.plan.blocks_sha256:
            journal.store.delete(source_path)
        raise SourceError(
            f"{shuffle.target.url}: another shuffle has just begun there; run the same command as it, or wait for its "
            "end"
        )
    return replace(shuffle, plan=held[0])
