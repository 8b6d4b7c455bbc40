"""Batches on a device, and whether there is one."""

from typing import Any

from corgi2.extras import needing

with needing("torch", "corgi2.torch"):
    import torch

Device = torch.device | str | int | None


def has_accelerator() -> bool:
    accelerator = getattr(torch, "accelerator", None)  # since torch 2.6
    return bool((accelerator or torch.cuda).is_available())


def usable(device: Device) -> torch.device | None:
    """The device, if moving a batch there means anything here."""
    if device is None:
        return None
    found = torch.device(device) if not isinstance(device, int) or has_accelerator() else torch.device("cpu")
    is_available = getattr(getattr(torch, found.type, None), "is_available", lambda: True)
    return found if found.type != "cpu" and is_available() else None


def moved(batch: Any, device: torch.device) -> Any:
    """The same batch with its tensors on a device, without waiting for them to arrive."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return type(batch)({name: moved(value, device) for name, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(value, device) for value in batch)
    return batch.to(device) if hasattr(batch, "to") else batch
