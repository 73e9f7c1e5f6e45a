"""The run-time functions of six functions are as in `tests/goldens/runtime_*.txt`.

`pytest --update-goldens` rewrites the goldens. And names: a function may be called anything.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aotlite as al

GOLDENS = Path(__file__).parents[2] / "goldens"
WEIGHT = al.ones(3).requires_grad_()


def plain(x: Any, y: Any, scale: float) -> Any:
    return x * scale + y, scale


def mutation(x: Any, y: Any) -> Any:
    x.mul_(y)
    return x.sum()


def alias(x: Any) -> Any:
    double = x * 2
    return x, x[1:], {"rows": double.t(), "first": double[0]}


def training(x: Any, w: Any) -> Any:
    return ((x @ w).exp()).sum()


def hidden(model: Any, x: Any) -> Any:
    return model(x) * WEIGHT


def drawn(x: Any) -> Any:
    return x + al.rand(2, 3)


def five(*tensors: Any) -> Any:
    return al.stack(tensors)


def linear() -> Any:
    model = al.nn.Linear(3, 3)
    model.bias = None
    return model


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "plain": (plain, lambda: (al.ones(2, 3), al.ones(3), 2.0)),
    "mutation": (mutation, lambda: (al.ones(2, 3), al.ones(2, 3))),
    "alias": (alias, lambda: (al.ones(2, 3),)),
    "training": (training, lambda: (al.ones(2, 3), al.ones(3, 2).requires_grad_())),
    "hidden": (hidden, lambda: (linear(), al.ones(3))),
    "drawn": (drawn, lambda: (al.ones(2, 3),)),
    "five": (five, lambda: tuple(al.ones(2) for _ in range(5))),
}


@pytest.mark.parametrize("name", CASES)
def test_the_source_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    """Of training also the backward's, which a first backward writes."""
    function, arguments = CASES[name]
    compiled = al.compile(function)
    result = compiled(*arguments())
    text = compiled.source
    if name == "training":
        result.backward()
        text += "\n" + "\n".join(result.grad_fn.plan.variants.sources)
    path = GOLDENS / f"runtime_{name}.txt"
    if pytestconfig.getoption("--update-goldens"):
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text


NAMES = [
    *("run", "leaves", "quiet_call", "MISS", "F0", "a0", "print", "tensor_over"),
    *("class", "None", "__debug__", "<lambda>", "a b", "", "x\ny", "\ufb01", "\xfcn\xef"),
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_function_may_have_any_name(name: str) -> None:
    """Names of the generated code's own, keywords, no names at all, and letters Python folds."""

    def function(x: Any) -> Any:
        return (x * 2).sum()

    function.__name__ = name
    compiled = al.compile(function)
    for _ in range(4):
        x = al.ones(2).requires_grad_()
        compiled(x).backward()
        assert [2.0, 2.0] == x.grad.tolist()  # type: ignore[union-attr]


def test_a_traceback_shows_the_generated_line() -> None:
    def backend(graph: Any) -> Any:
        def run(*arrays: Any) -> Any:
            raise ZeroDivisionError

        return run

    compiled = al.compile(lambda x: x * 2, backend=backend)
    with pytest.raises(ZeroDivisionError) as caught:
        compiled(al.ones(2))
    shown = "".join(traceback.format_tb(caught.value.__traceback__))
    assert "in call\n    w0, = run.call([x0])" in shown
