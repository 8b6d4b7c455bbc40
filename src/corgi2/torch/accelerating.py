"""What Accelerate expects of a loader that it has prepared, and leaves to `CorgiLoader`.

``accelerator.prepare`` leaves a loader alone that says it is prepared. So this module does what a prepared loader does:
it tells Accelerate's ``GradientState`` which loader is being read, whether its last batch is out, and how many examples
of that are no repetitions.
"""

import sys
from typing import Any


def device() -> Any:
    """Where Accelerate puts batches."""
    state = sys.modules.get("accelerate.state")
    return state.PartialState().device if state is not None and state.PartialState._shared_state else None


def begin(loader: Any, remainder: int) -> None:
    loader.end_of_dataloader, loader.remainder = False, remainder
    if (state := _gradient_state()) is not None:
        state._remove_dataloader(loader)  # if an earlier iteration was left
        state._add_dataloader(loader)


def end(loader: Any) -> None:
    if (state := _gradient_state()) is not None:
        state._remove_dataloader(loader)


def _gradient_state() -> Any:
    state = sys.modules.get("accelerate.state")
    return state.GradientState() if state is not None and state.GradientState._shared_state else None
