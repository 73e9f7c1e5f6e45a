"""One step of MAML: weights from which one step of descent is enough, for sines of any phase.

The gradient of the loss after the inner step goes through the inner gradient: second derivatives.
Either `loss_of` is compiled, and eager differentiates it twice, or the whole step is compiled.
"""

from typing import Any

import aotlite as al

RATE, TASKS, POINTS = 0.1, 8, 16


def weights() -> list[Any]:
    al.manual_seed(0)
    sizes = [(1, 24), (24,), (24, 1), (1,)]
    return [(al.randn(*s, dtype=al.float64) * 0.5).requires_grad_() for s in sizes]


def loss_of(parameters: Any, x: Any, y: Any) -> Any:
    w, b, v, c = parameters
    return ((x @ w + b).tanh() @ v + c - y).square().mean()


def adapted(loss: Any, parameters: Any, x: Any, y: Any) -> list[Any]:
    """The parameters after a step of descent, with their history."""
    grads: Any = al.autograd.grad(loss(parameters, x, y), parameters, create_graph=True)
    return [p - RATE * g for p, g in zip(parameters, grads, strict=True)]


def maml_step(parameters: Any, tasks: Any, loss: Any = loss_of) -> Any:
    for p in parameters:
        p.grad = None
    losses = [loss(adapted(loss, parameters, x, y), *query) for x, y, *query in tasks]
    total = sum(losses[1:], losses[0]) / len(losses)
    total.backward()
    with al.no_grad():
        for p in parameters:
            p.sub_(0.05 * p.grad)
    return total.detach()


def draw() -> list[Any]:
    """For each task: points to adapt to, and points for the loss afterwards."""
    tasks = []
    for _ in range(TASKS):
        phase = al.rand(1, dtype=al.float64) * 3.0
        points = [al.rand(POINTS, 1, dtype=al.float64) * 6.0 - 3.0 for _ in range(2)]
        tasks.append([each for x in points for each in (x, (x + phase).sin())])
    return tasks


def train(step: Any, steps: int) -> list[float]:
    parameters = weights()
    al.manual_seed(1)
    return [step(parameters, draw()).item() for _ in range(steps)]


def main() -> None:
    def near(a: list[float], b: list[float]) -> bool:
        return all(abs(p - q) <= 1e-9 * abs(p) for p, q in zip(a, b, strict=True))

    compiled_loss = al.compile(loss_of)
    eager = train(maml_step, 10)
    outside = train(lambda p, t: maml_step(p, t, compiled_loss), 10)
    whole = train(al.compile(maml_step), 300)
    print("losses of eager and of a compiled loss agree:", near(eager, outside))
    print("losses of eager and of compiled steps agree:", near(eager, whole[:10]))
    first, last = sum(whole[:20]) / 20, sum(whole[-20:]) / 20
    print("after adaptation the loss has halved:", last < first / 2, f"({first:.2f} to {last:.2f})")


if __name__ == "__main__":
    main()
