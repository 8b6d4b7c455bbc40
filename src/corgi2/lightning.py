"""For Lightning: `CorgiCallback`, for training that resumes with another number of devices in the middle of an epoch.

Everything else needs no callback: Lightning saves and loads the state of a `CorgiLoader`, and sets its epoch.
"""

from typing import Any

from corgi2.extras import needing
from corgi2.torch import CorgiLoader

with needing("lightning", "corgi2.lightning"):
    from lightning.pytorch.callbacks import Callback


class CorgiCallback(Callback):  # type: ignore[misc]
    """Lightning asks for the length of a loader before it loads its state, and would end the resumed epoch there: too
    early with more devices. This asks again."""

    def on_train_start(self, trainer: Any, _: Any) -> None:
        loop = trainer.fit_loop
        loaders = loop._combined_loader
        if trainer.limit_train_batches != 1.0 or not any(isinstance(each, CorgiLoader) for each in loaders.flattened):
            return
        loaders.limits = [len(each) for each in loaders.flattened]
        if loaders._iterator is not None:
            loaders._iterator.limits = loaders.limits
        loop.max_batches = len(loaders)
        loop._data_fetcher.length = loop.max_batches

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self.on_train_start(trainer, module)
