"""A physics-informed network: u'' + u = 0, u(0) = 0, u'(0) = 1, which is the sine.

The loss has second derivatives of the network, and its gradient has third derivatives. Either the
network is compiled alone, and eager derivatives go through it, or the whole step is one graph.
"""

from typing import Any

import aotlite as al
from aotlite import nn

SPAN = 3.0


def network() -> Any:
    al.manual_seed(0)
    layers = [(1, 16), (16, 16), (16, 1)]
    first, second, last = (nn.Linear(*sizes, dtype=al.float64) for sizes in layers)
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last)


def residual(u: Any, x: Any) -> Any:
    """How far u is from the equation at x, and from its two conditions at 0."""
    value = u(x)
    ones = al.ones_like(value)
    slope: Any = al.autograd.grad(value, [x], ones, create_graph=True)[0]
    bend: Any = al.autograd.grad(slope, [x], ones, create_graph=True)[0]
    return (bend + value).square().mean() + value[0].square().sum() + (slope[0] - 1).square().sum()


def step(u: Any, optimizer: Any, x: Any) -> Any:
    optimizer.zero_grad()
    loss = residual(u, x.detach().requires_grad_())
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(one_step: Any, wrap: Any, steps: int) -> tuple[list[float], Any]:
    layers = network()
    u, optimizer = wrap(layers), al.optim.AdamW(layers.parameters(), lr=0.01, weight_decay=0.0)
    x = al.linspace(0.0, SPAN, 32, dtype=al.float64).unsqueeze(1)
    return [one_step(u, optimizer, x).item() for _ in range(steps)], layers


def main() -> None:
    def near(a: list[float], b: list[float]) -> bool:
        return all(abs(p - q) <= 1e-6 * abs(p) for p, q in zip(a, b, strict=True))

    eager, _ = train(step, lambda layers: layers, 20)
    inside, _ = train(step, al.compile, 20)
    whole, layers = train(al.compile(step), lambda layers: layers, 1500)
    print("losses of eager and of a compiled network agree:", near(eager, inside))
    print("losses of eager and of compiled steps agree:", near(eager, whole[:20]))
    x = al.linspace(0.0, SPAN, 7, dtype=al.float64).unsqueeze(1)
    error = (layers(x) - x.sin()).abs().max().item()
    print(f"after {len(whole)} steps, within 0.05 of the sine: {error < 0.05}")


if __name__ == "__main__":
    main()
