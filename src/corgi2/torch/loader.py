"""One loader that every trainer takes: a `torch.utils.data.DataLoader` that shuffles, shards, counts and resumes."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any

from corgi2.arguments import suggesting
from corgi2.extras import needing
from corgi2.online import Affinity, BatchFormat, Feed, Journey, Picks, Place, Stage, Tail, Transform
from corgi2.sizes import plural
from corgi2.stores import Options
from corgi2.torch import accelerating
from corgi2.torch.agreement import Agreement
from corgi2.torch.devices import Device, has_accelerator, usable
from corgi2.torch.giving import Batches
from corgi2.torch.handing import Handing
from corgi2.torch.part import Collate, Part
from corgi2.torch.turns import Turns

with needing("torch", "corgi2.torch"):
    import torch
    from torch.utils.data import DataLoader, default_collate


class CorgiLoader(DataLoader):  # type: ignore[type-arg]
    """A data set in shards, in an order nearly as good as a full shuffle, epoch after epoch.

    Every iteration is one epoch, beginning with ``epoch``. The process that iterates counts the batches that it gives
    out, so its state is exact at any batch, with any number of workers, and the same on all ranks.
    """

    end_of_dataloader, remainder = False, -1
    use_stateful_dataloader = True
    """As Accelerate asks: its ``save_state`` saves the state."""

    @suggesting
    def __init__(
        self,
        dataset: str | os.PathLike[str] | Feed,
        *,
        batch_size: int | None = None,
        buffer: int | str = "auto",
        buffer_blocks: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        transform: Transform | None = None,
        collate_fn: Collate | None = None,
        picks: Picks = "even",
        tail: Tail = "drop",
        drop_last: bool = False,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        batch_format: BatchFormat = "numpy",
        src_options: Options | None = None,
        epoch: int = 0,
        transform_threads: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        affinity: Affinity = "auto",
        columns: Sequence[str] | None = None,
        fill: Mapping[str, Any] | None = None,
        device: Device = None,
        pin_memory: bool = False,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        multiprocessing_context: str | BaseContext | None = None,
        worker_init_fn: Callable[[int], None] | None = None,
        timeout: float = 0,
        in_order: bool = True,
        repeat: bool = False,
        sampler: object = None,
        batch_sampler: Any = None,
    ) -> None:
        """
        Args:
            dataset: A folder, a glob or a brace range, on this machine or in an object store; shuffled by corgi2 or
                not. Or a `CorgiDataset`, whose settings then hold, but for those about batches and workers.
            batch_size: Examples per batch. Without it, single samples come out.
            buffer: Memory for this rank's data, for all of its workers together: ``"2GB"``, or a number of bytes.
                ``"auto"`` is what rank 0 chooses.
            buffer_blocks: Instead of ``buffer``: how many blocks each worker's buffer holds.
            num_workers: Processes that read and transform. 0 reads in this process, with threads.
            seed: Together with the epoch, the ranks, the workers and the buffer, it determines the order.
            transform: Called with each batch in the process that reads it; with each sample if there is no
                ``batch_size``, or if there is a ``collate_fn``.
            collate_fn: Makes a batch of a list of ``batch_size`` samples, in the process that reads them. Without it,
                batches are columns, which is much faster.
            picks: ``"even"`` spreads each window over the groups of the offline pass; ``"random"`` is the paper's way.
            tail: ``"drop"`` leaves out fewer than ``world_size`` examples per epoch, and ``"repeat"`` repeats as few,
                so that all ranks have equally many; ``"keep"`` yields every example once.
            drop_last: Leave out the last batch if it is short.
            shuffle: False yields the stored order.
            rank: Which rank this is; if not given, ``torch.distributed`` or the launcher's variables tell.
            world_size: How many ranks share an epoch; found in the same way. Give both, or neither.
            batch_format: ``"numpy"`` for columns, with tensors for numbers, ``"arrow"`` for tables, or ``"samples"``
                for a list of samples.
            src_options: Options for the store (docs/stores.md).
            epoch: The epoch of the first iteration.
            transform_threads: Threads of each reading process that call ``transform``, in order; for decoders that
                release Python's lock.
            cache_dir: A folder on a disk of this node, where what was read is kept for later epochs; all ranks and
                workers of a node share it.
            cache_size: The most that the folder may take, for all data sets in it: ``"500GB"``. If not given, what the
                disk has.
            affinity: ``"node"`` lets blocks come back to the same nodes in every epoch, as a cache needs; or the ranks
                of each node: ``[8, 8, 4]``. ``"auto"`` is ``"node"`` with a cache.
            columns: Of Parquet, the columns to read; the others cost neither memory nor requests.
            fill: Of Parquet, what stands for missing values, by column: ``{"label": -1}``.
            device: Where the tensors of a batch are put, one batch ahead. Nothing happens if it is not there.
            pin_memory: As in torch; nothing happens without an accelerator.
            prefetch_factor: Batches that each worker reads ahead; 2 if not given.
            persistent_workers: Keep the workers from one epoch to the next.
            multiprocessing_context: How workers are started, as in torch.
            worker_init_fn: Called with its number in each worker before it reads, as in torch.
            timeout: Seconds to wait for a batch of a worker, as in torch; 0 waits as long as it takes.
            in_order: Only True, because the state counts batches in order.
            repeat: Only False: iterate again for the next epoch.
            sampler: Not to be given. Frameworks that make a loader anew pass None here.
            batch_sampler: Not to be given. Frameworks that make a loader anew pass this loader's own here.
        """
        _check_order(in_order, repeat)
        if sampler is not None or not hasattr(batch_sampler or Turns, "batch_size"):
            raise ValueError("CorgiLoader orders and batches examples itself; leave out sampler and batch_sampler")
        if batch_sampler is not None:
            batch_size, drop_last = batch_sampler.batch_size or None, batch_sampler.drop_last
        if collate_fn is _as_is:
            collate_fn = None
        agreement = Agreement() if world_size != 1 else None
        is_auto = buffer == "auto" and buffer_blocks is None
        if isinstance(dataset, Feed):
            part = _part_of(dataset, batch_size, collate_fn, drop_last, shuffle)
        else:
            part = Part(
                dataset,
                buffer=agreement.buffer_bytes(rank) if agreement and is_auto else buffer,
                buffer_blocks=buffer_blocks,
                batch_size=batch_size,
                seed=seed,
                transform=transform,
                picks=picks,
                tail=tail,
                drop_last=drop_last,
                shuffle=shuffle,
                rank=rank,
                world_size=world_size,
                batch_format="samples" if collate_fn is not None else batch_format,
                src_options=src_options,
                epoch=epoch,
                transform_threads=transform_threads,
                cache_dir=cache_dir,
                cache_size=cache_size,
                affinity=affinity,
                columns=columns,
                fill=fill,
            )
            part.collate = collate_fn
        _check_batches(part)
        workers = max(1, num_workers)
        part.room(workers)  # which a buffer may be too small for
        self._agreement = agreement if part.world_size > 1 else None
        self._journey = Journey(part, workers, epoch, partial(_agree, agreement, part, workers))
        turns = Turns(self._journey, part.batch_size or 0, part.rules.drop_last)
        super().__init__(
            part,
            batch_sampler=turns,
            num_workers=num_workers,
            collate_fn=_as_is,
            pin_memory=pin_memory and has_accelerator(),
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
        )
        # torch would not set these beside a batch sampler, but others read them
        vars(self).update(batch_size=part.batch_size, drop_last=part.rules.drop_last, sampler=turns)
        self.device, self._is_prepared = device, False
        self._handing: Handing | None = None

    def __repr__(self) -> str:
        workers = plural(self.num_workers, "worker")
        return f"<CorgiLoader with {workers}, next epoch {self._journey.next.epoch}: {Feed.__repr__(self._part)[1:-1]}>"

    @property
    def _part(self) -> Part:
        part: Part = self.dataset  # type: ignore[assignment]
        return part

    def __len__(self) -> int:
        """Batches, or samples, of this rank in the current epoch: those already given, also before a state was loaded,
        and those left."""
        return self._journey.length

    def __iter__(self) -> Batches:  # type: ignore[override]
        self._journey.is_asked = True
        return Batches(self._journey, self._start, self._tell, self._place_on, self.persistent_workers)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration yields this epoch, from its beginning, or from a loaded state that lies in it."""
        self._journey.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """What has been given out: a few integers, which JSON can hold, and the same on all ranks. After the last batch
        it is the beginning of the next epoch."""
        return self._part.state(self._journey.place, self._journey.workers)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration resumes there, whatever the numbers of ranks and workers were."""
        self._journey.load(self._part.place_of(state))

    def _start(self, stage: Stage) -> Iterator[Any]:
        """Read an iteration, by workers if there are any."""
        turns: Turns = self.batch_sampler  # type: ignore[assignment]
        turns.coming = stage
        try:
            batches = super().__iter__()
        finally:
            turns.coming = None
        handing = self._handing
        if not self.persistent_workers:
            self._handing = None
        return batches if handing is None else map(handing.unwrapped, batches)

    def _get_iterator(self) -> Any:
        """Torch calls it to start workers."""
        if not self.num_workers:
            return super()._get_iterator()
        room, ahead = self._part.room(self.num_workers), self.prefetch_factor or 0
        self._handing = Handing(room, self.num_workers, ahead)
        with self._handing.lent(self._part):
            return super()._get_iterator()

    def _place_on(self) -> torch.device | None:
        return usable(accelerating.device() if self.device is None and self._is_prepared else self.device)

    def _tell(self, stage: Stage) -> None:
        """Tell other ranks and Accelerate how far an iteration is."""
        if self._agreement is not None and (stage.is_over or stage.given.bit_count() == 1 < stage.given):
            self._agreement.follow(self._part.rank, stage.given)  # at powers of two: it asks the store of the group
        if not self._is_prepared:
            return
        if stage.is_over:
            accelerating.end(self)
        elif not stage.given:
            accelerating.begin(self, stage.remainder)
        self.end_of_dataloader = stage.given == stage.total

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Accelerate asks this when it prepares a loader, and leaves those alone that say yes."""
        self._is_prepared = True
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, _: bool) -> None:
        self._is_prepared = True


def _as_is(batch: Any) -> Any:
    """Batches are complete when torch gets them."""
    return batch


def _agree(agreement: Agreement | None, part: Part, workers: int, place: Place, left: int | None) -> None:
    """Refuse to begin where another rank begins elsewhere."""
    world = part.world(workers)
    if agreement is None or world.ranks == 1:
        return
    values = {"data": part.catalog.fingerprint, **part.recorded, **world._asdict(), "epoch": place.epoch}
    values |= {"cache_dir": part.catalog.cache is not None}
    resumes = [[*share.world[:4], *share[1:], *share.world.nodes] for share in place.shares]
    agreement.check(part.rank, values | {"resumes": resumes}, left)


def _part_of(feed: Feed, batch_size: int | None, collate_fn: Collate | None, drop_last: bool, shuffle: bool) -> Part:
    """A data set that exists, in batches as asked for. One that yields samples goes on to do so, for a collate
    function."""
    _check_order(True, feed.repeat)
    rules = replace(feed.rules, drop_last=feed.rules.drop_last or drop_last, shuffle=feed.rules.shuffle and shuffle)
    if batch_size is not None and feed.batch_size is None and collate_fn is None:
        collate_fn = default_collate
    part = Part.of(feed, rules=rules, batch_size=batch_size or feed.batch_size)
    part.collate = collate_fn or getattr(feed, "collate", None)
    if collate_fn is not None:
        part.batch_format = "samples"
    return part


def _check_order(in_order: bool, repeat: bool) -> None:
    if not in_order:
        raise ValueError(
            "in_order=False has no exact state, because batches would be given as they come; leave it out, or give "
            "CorgiDataset to a DataLoader with in_order=False"
        )
    if repeat:
        raise ValueError(
            "repeat=True has no end, and so no exact state; iterate the CorgiLoader again for the next epoch, or give "
            "CorgiDataset(repeat=True) to a DataLoader"
        )


def _check_batches(part: Part) -> None:
    if part.collate is not None and part.batch_size is None:
        raise ValueError("collate_fn makes a batch of batch_size samples; give batch_size too")
