"""A network with one hidden layer, trained by SGD with momentum; numpy only."""

from collections.abc import Iterable

import numpy as np

from corgi2.demo.digits import CLASSES, Digits, Floats, Labels

HIDDEN, RATE, MOMENTUM, BATCH = 32, 0.1, 0.9, 32


class Network:
    """64 pixels, 32 units, 10 classes."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        shapes = (64, HIDDEN), (HIDDEN, CLASSES)
        self._weights = [random.normal(0, np.sqrt(2 / shape[0]), shape) for shape in shapes]
        self._biases = [np.zeros(shape[1]) for shape in shapes]
        self._speeds = [np.zeros_like(part) for part in self._parts]

    @property
    def _parts(self) -> list[Floats]:
        return [*self._weights, *self._biases]

    def _forward(self, x: Floats) -> tuple[Floats, Floats]:
        hidden = np.maximum(x @ self._weights[0] + self._biases[0], 0)
        return hidden, hidden @ self._weights[1] + self._biases[1]

    def train(self, batches: Iterable[tuple[Floats, Labels]]) -> None:
        """One step per batch."""
        for x, y in batches:
            hidden, scores = self._forward(x)
            wrong = np.exp(scores - scores.max(axis=1, keepdims=True))
            wrong /= wrong.sum(axis=1, keepdims=True)
            wrong[np.arange(len(y)), y] -= 1
            wrong /= len(y)
            back = (wrong @ self._weights[1].T) * (hidden > 0)
            slopes = x.T @ back, hidden.T @ wrong, back.sum(axis=0), wrong.sum(axis=0)
            for part, speed, slope in zip(self._parts, self._speeds, slopes, strict=True):
                speed *= MOMENTUM
                speed -= RATE * slope
                part += speed

    def accuracy(self, digits: Digits) -> float:
        """Accuracy on the test images, in per cent."""
        _, scores = self._forward(digits.test_x)
        return float(100 * (scores.argmax(axis=1) == digits.test_y).mean())
