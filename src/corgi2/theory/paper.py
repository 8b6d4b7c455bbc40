"""The paper's own statements: Algorithm 2 with replacement (Theorem 1), and the bound of Theorem 2."""

import math
from dataclasses import dataclass

from corgi2.theory.passes import Blocks


def h_with_replacement(data: Blocks, n: int) -> float:
    """h' after the paper's Algorithm 2 as printed (Theorem 1): exact."""
    data.check(n)
    return 1 + (1 / n - 1 / (n * data.examples)) * data.h


def improves(data: Blocks, n: int) -> bool:
    """Whether the paper's pass with replacement lowers h: h_D > nb/((n−1)·b + 1)."""
    data.check(n)
    return data.h > n * data.examples / ((n - 1) * data.examples + 1)


def surviving(passes: int = 1) -> float:
    """The share of distinct examples that drawing blocks, and then examples, with replacement leaves."""
    if passes < 1:
        raise ValueError(f"there is at least one pass (got {passes})")
    lost = 0.0
    for _ in range(passes):
        lost = math.exp(math.exp(lost - 1) - 1)
    return 1 - lost


@dataclass(frozen=True, slots=True)
class Bound:
    """Theorem 2: three terms. The paper leaves out its constants, so only ratios of leading terms should be shown."""

    leading: float
    second: float
    third: float


def theorem2(data: Blocks, n: int, seen: float, sigma2: float = 1.0) -> Bound:
    """The bound after ``seen`` examples, with buffers of n blocks of parameter h."""
    data.check(n)
    if seen <= 0:
        raise ValueError(f"a bound after {seen:g} examples says nothing")
    alpha = (n - 1) / (data.count - 1) if data.count > 1 else 1.0
    beta = alpha**2 + (1 - alpha) ** 2 * (data.examples - 1) ** 2
    gamma = (n / data.count) ** 3
    return Bound((1 - alpha) * data.h * sigma2 / seen, beta / seen**2, gamma * data.total**3 / seen**3)


def step_size(step: int, data: Blocks, n: int, mu: float, delay: float) -> float:
    """Theorem 2's η_t = 6/(b·n·μ·(t + a))."""
    data.check(n)
    if mu <= 0 or delay <= 0 or step < 0:
        raise ValueError("μ and a must be above 0, and t at least 0")
    return 6 / (data.examples * n * mu * (step + delay))


def least_delay(lipschitz: float, gradient: float, hessian: float, mu: float) -> float:
    """The least a of Theorem 2, from L, G, L_H and μ."""
    if mu <= 0:
        raise ValueError("μ must be above 0")
    curved = 8 * lipschitz * gradient + 24 * lipschitz**2 + 28 * hessian * gradient
    return max(curved / mu**2, 24 * lipschitz / mu)
