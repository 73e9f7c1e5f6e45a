"""HOOK-1, HOOK-2, HOOK-4: hooks that cannot be, and what tells entries apart."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from tests.rules.helpers.hook_programs import leaf

Call = Callable[..., Any]


REFUSED: dict[str, tuple[Call, str]] = {
    "a tensor": (
        lambda x: (y := x * 2, x.register_hook(lambda grad: grad * y.detach()))[0],
        "uses a tensor",
    ),
    "a list": (lambda x: (x.register_hook([].append), x * 2)[1], "reaches a list"),
    "a list in a variable": (
        lambda x: (seen := [], x.register_hook(lambda grad: seen.append(grad)), x * 2)[2],
        "variable 'seen'",
    ),
    "an argument": (
        lambda x: (x.register_hook(functools.partial(lambda s, g: None, [])), x * 2)[1],
        "an argument",
    ),
    "retained nowhere": (lambda x: ((y := x * 2).retain_grad(), y * 3)[1], "retain_grad"),
    "a hook of a node": (
        lambda x: ((y := x * 2).grad_fn.register_hook(lambda *grads: print()), y * 3)[1],
        "of a tape node",
    ),
    "a hook of a hook": (
        lambda x: ((y := x * 2).register_hook(lambda g: y.register_hook(abs) and None), y * 3)[1],
        "registers a hook",
    ),
    "effects and a tensor": (
        lambda x: ((y := x * 2).register_hook(lambda g: print(g * y)), y * 3)[1],
        "uses a tensor",
    ),
}


@pytest.mark.rules("HOOK-1", "HOOK-2", "HOOK-4")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_before_anything_happens(case: str, capsys: Any) -> None:
    function, text = REFUSED[case]
    x = leaf(1.0, 2.0)
    with pytest.raises(al.UnsupportedError, match=text) as caught:
        al.compile(function)(x)
    assert any("test_hook_refused.py" in note for note in caught.value.__notes__)
    assert any("Instead: " in note for note in caught.value.__notes__)
    assert "" == capsys.readouterr().out
    function(x).sum().backward()
    assert x.grad is not None


@pytest.mark.rules("HOOK-1")
def test_a_variable_that_the_function_rebinds_is_not_a_hooks() -> None:
    def f(x: Any) -> Any:
        count = 0

        def hook(grad: Any) -> Any:
            nonlocal count
            count += 1
            return grad * count

        x.register_hook(hook)
        return x * 2

    with pytest.raises(al.UnsupportedError, match="rebinds variable 'count'"):
        al.compile(f)(leaf(1.0))


@pytest.mark.rules("HOOK-1", "HOOK-2", "CAP-3")
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("way", ["plain", "a value", "loud"])
def test_what_hooks_change_makes_no_new_entries_and_what_they_read_does(
    inside: bool, way: str, capsys: Any
) -> None:
    """Calls are not told by what their hooks change, but by what else the function reads."""
    log, config = [], {"factor": 2}

    def hook(grad: Any) -> None:
        if way == "loud":
            print(config["factor"])
        log.append(grad.sum().item() if way == "a value" else config["factor"])

    def f(x: Any) -> Any:
        y = x * config["factor"]
        (y if inside else x).register_hook(hook)
        return y * 3

    compiled = al.compile(f)
    for _ in range(4):
        compiled(leaf(1.0)).sum().backward()
    assert 4 == len(log)
    assert 1 == len(compiled.entries)
    config["factor"] = 5
    assert 15.0 == compiled(leaf(1.0)).item()
    assert 2 == len(compiled.entries)


@pytest.mark.rules("HOOK-1", "CAP-3")
def test_another_hook_in_a_variable_is_another_entry() -> None:
    hooks = {"now": lambda grad: grad * 2}

    def f(x: Any) -> Any:
        x.register_hook(hooks["now"])
        return x * 3

    compiled = al.compile(f)
    found = []
    for factor in (2, 7, 7):
        if factor == 7:
            hooks["now"] = seven
        x = leaf(1.0)
        compiled(x).sum().backward()
        found.append(x.grad.tolist())
    assert [[6.0], [21.0], [21.0]] == found


def seven(grad: Any) -> Any:
    return grad * 7
