"""What ranks of tests need, imported once for all of them."""

import accelerate
import lightning.pytorch
import transformers

import corgi2.torch

__all__ = ["accelerate", "corgi2", "lightning", "transformers"]
