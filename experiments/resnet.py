"""Residual networks: ResNet-18 for images of 32 × 32, ResNet-50 for larger ones."""

from collections.abc import Sequence

import torch
from torch import nn


class Basic(nn.Module):
    """Two convolutions, and a way around them."""

    widens = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(*_conv(before, width, 3, stride), nn.ReLU(), *_conv(width, width, 3, 1))
        self.around = _around(before, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x) + self.around(x))


class Bottleneck(nn.Module):
    """Three convolutions, the middle one narrow, and a way around them."""

    widens = 4

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = width * self.widens
        self.inner = nn.Sequential(
            *_conv(before, width, 1, 1),
            nn.ReLU(),
            *_conv(width, width, 3, stride),
            nn.ReLU(),
            *_conv(width, after, 1, 1),
        )
        self.around = _around(before, after, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x) + self.around(x))


def _conv(before: int, after: int, size: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after)]


def _around(before: int, after: int, stride: int) -> nn.Module:
    return nn.Identity() if stride == 1 and before == after else nn.Sequential(*_conv(before, after, 1, stride))


def _stages(unit: type[Basic] | type[Bottleneck], depths: Sequence[int]) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = []
    before = 64
    for stage, depth in enumerate(depths):
        for number in range(depth):
            width = 64 << stage
            layers.append(unit(before, width, 2 if stage and not number else 1))
            before = width * unit.widens
    return layers, before


def resnet18(classes: int) -> nn.Module:
    """With a first convolution of 3 × 3, as is usual for CIFAR."""
    layers, after = _stages(Basic, (2, 2, 2, 2))
    return nn.Sequential(*_conv(3, 64, 3, 1), nn.ReLU(), *layers, *_head(after, classes))


def resnet50(classes: int) -> nn.Module:
    layers, after = _stages(Bottleneck, (3, 4, 6, 3))
    return nn.Sequential(*_conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *layers, *_head(after, classes))


def _head(after: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(after, classes)]
