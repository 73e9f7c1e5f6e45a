"""CAG-8, CAG-9, CAG-13: hooks are called in eager's order, with eager's gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, enable

pytestmark = pytest.mark.rules("CAG-8", "CAG-9")


def logs(program: Callable[[list[Any]], Any], times: int = 3) -> None:
    """The engine's log and that of compiled backwards: captured, looked at, matched."""
    expected: list[Any] = []
    expected.append(("end", program(expected)))
    tapes = CompiledAutograd.of("reference")
    for _ in range(times):
        log: list[Any] = []
        with enable(tapes):
            log.append(("end", program(log)))
        assert log == expected
    assert tapes.counters.captures == 1
    assert tapes.counters.branches == 0


def numbers(*values: float) -> Any:
    return al.tensor(values or (1.0, 2.0), requires_grad=True)


def listed(grads: Any) -> Any:
    return [None if g is None else g.tolist() for g in grads]


def test_all_kinds_of_hooks_of_one_parameter() -> None:
    """CAG-9: tensor, before the node, accumulation, behind it, behind the node."""

    def program(log: list[Any]) -> Any:
        w = numbers()
        node = al.autograd.graph.get_gradient_edge(w).node
        w.register_post_accumulate_grad_hook(lambda p: log.append(("post", p.grad.tolist())))
        node.register_hook(lambda i, o: log.append(("node behind", listed(i), listed(o))))
        node.register_prehook(lambda o: log.append(("node before", listed(o))))
        w.register_hook(lambda g: log.append(("tensor", g.tolist(), w.grad is None)))
        w.register_hook(lambda g: g * 10)
        (w * w).sum().backward()
        return w.grad.tolist()

    logs(program)


def test_all_kinds_of_hooks_of_one_node() -> None:
    """Tensor hooks, what is retained, before the node, the node, behind it."""

    def program(log: list[Any]) -> Any:
        x = numbers()
        y = x * 3
        y.retain_grad()
        y.register_hook(lambda g: log.append(("first", g.tolist())))
        y.register_hook(lambda g: g + 1)
        y.register_hook(lambda g: log.append(("third", g.tolist(), y.grad is None)))

        def before(grads: Any) -> Any:
            log.append(("before", listed(grads), y.grad.tolist()))
            return tuple([grad * 2 for grad in grads])

        y.grad_fn.register_prehook(before)
        y.grad_fn.register_hook(lambda i, o: log.append(("behind", listed(i), listed(o))))
        (y * y).sum().backward()
        return x.grad.tolist(), y.grad.tolist()

    logs(program)


def test_hooks_of_several_parameters_come_in_the_order_of_accumulation() -> None:
    """CAG-10: that of the engine, not that of the arguments."""

    def program(log: list[Any]) -> Any:
        ws = [numbers(1.0 + i) for i in range(4)]
        for i, w in enumerate(ws):
            w.register_post_accumulate_grad_hook(lambda p, i=i: log.append(i))
        out = ws[2] * 2
        for w in (ws[0], ws[3], ws[1], ws[0]):
            out = (out + w) * w
        out.sum().backward()
        return [w.grad.tolist() for w in ws]

    logs(program)


@pytest.mark.rules("CAG-13")
@pytest.mark.parametrize("reentrant", [False, True])
def test_saved_values_are_unpacked_when_their_node_runs(reentrant: bool) -> None:
    def program(log: list[Any]) -> Any:
        x, kept = numbers(), []

        def pack(tensor: Any) -> int:
            kept.append(tensor.detach().clone())
            return len(kept) - 1

        def unpack(index: int) -> Any:
            log.append(("unpack", index))
            if reentrant:
                z = numbers(3.0)
                with al.enable_grad():
                    (z * z).sum().backward()
                log.append(z.grad.tolist())
            return kept[index]

        with al.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = (x * x).sin() * x
        y.register_hook(lambda g: log.append("hook"))
        (y * 2).sum().backward()
        return x.grad.tolist()

    logs(program)


def test_a_hook_that_steps_while_the_backward_runs() -> None:
    def program(log: list[Any]) -> Any:
        ws = [numbers(1.0, 2.0), numbers(3.0, 4.0)]

        def step(p: Any) -> None:
            log.append(p.grad.tolist())
            with al.no_grad():
                p.sub_(p.grad * 0.5)
            p.grad = None

        for w in ws:
            w.register_post_accumulate_grad_hook(step)
        (ws[0].sin() * ws[1].exp()).sum().backward()
        return [w.tolist() for w in ws], [w.grad for w in ws]

    logs(program)


@pytest.mark.rules("CAG-24")
def test_a_hook_that_goes_backward_itself_has_the_engine() -> None:
    def program(log: list[Any]) -> Any:
        x, y = numbers(), numbers(5.0)

        def hook(grad: Any) -> Any:
            assert not al.compiled_autograd.is_enabled()
            with al.enable_grad():
                (y * y).sum().backward()
            return grad * y.grad

        x.register_hook(hook)
        (x * x).sum().backward()
        return x.grad.tolist(), y.grad.tolist()

    logs(program)


# --------------------------------------------------------------------------------- bad input
def outcome(program: Callable[[], Any], tapes: Any) -> Any:
    with enable(tapes) if tapes is not None else al.compiled_autograd.disable():
        try:
            return program()
        except Exception as error:
            return type(error).__name__, str(error)


def worlds(make: Callable[[], tuple[Callable[[], Any], list[Any]]], *, same: bool = True) -> Any:
    """What is raised and what leaves have then, by the engine and compiled, three times."""
    program, leaves = make()
    expected = outcome(program, None), [listed([leaf.grad]) for leaf in leaves]
    tapes = CompiledAutograd.of("reference")
    for _ in range(3):
        program, leaves = make()
        found = outcome(program, tapes), [listed([leaf.grad]) for leaf in leaves]
        assert found == expected
        assert not al.compiled_autograd.is_enabled()
        assert al.is_grad_enabled()
        # What comes next is as if nothing had been.
        x = numbers()
        with enable(tapes):
            (x * x).sum().backward()
        assert x.grad.tolist() == [2.0, 4.0]
    return expected[0]


def _raising(grad: Any) -> Any:
    raise KeyError("a hook")


BAD_HOOKS: dict[str, Callable[[Any], Any]] = {
    "raises": _raising,
    "another shape": lambda grad: grad.sum(),
    "another dtype": lambda grad: grad.to(al.float64),
    "a number": lambda grad: 3,
    "a list": lambda grad: [grad],
    "writes": lambda grad: grad.mul_(2),
    "writes and gives another": lambda grad: grad.mul_(2) + 1,
}


@pytest.mark.parametrize("at", ["leaf", "middle", "end"])
@pytest.mark.parametrize("hook", BAD_HOOKS)
def test_a_hook_that_misbehaves(hook: str, at: str) -> None:
    def make() -> Any:
        a, b = numbers(), numbers(3.0, 4.0)
        middle = a * b
        end = middle.sin() * a
        {"leaf": b, "middle": middle, "end": end}[at].register_hook(BAD_HOOKS[hook])
        return (lambda: end.sum().backward()), [a, b]

    worlds(make)


def test_backward_twice_without_retaining() -> None:
    def make() -> Any:
        a = numbers()
        end = (a.sin() * a).sum()

        def twice() -> None:
            end.backward()
            end.backward()

        return twice, [a]

    assert worlds(make)[0] == "AutogradError"


def test_a_saved_value_that_was_written() -> None:
    def make() -> Any:
        a, b = numbers(), numbers(3.0, 4.0)
        middle = a.exp()
        end = (middle * b).sum() + (b * b).sum()
        middle.detach().add_(1)
        return (lambda: end.backward()), [a, b]

    kind, text = worlds(make)
    assert kind == "AutogradError"
    assert "modified in place" in text


def test_a_hook_that_writes_what_a_later_node_saved() -> None:
    def make() -> Any:
        a = numbers()
        middle = a.exp()
        end = middle.sin()
        end.register_hook(lambda grad: [middle.detach().add_(1), None][1])
        return (lambda: end.sum().backward()), [a]

    assert worlds(make)[0] == "AutogradError"


def test_hooks_removed_between_capture_and_replay() -> None:
    tapes, seen = CompiledAutograd.of("reference"), []
    a = numbers()
    for keep in (True, True, False, True, False):
        a.grad = None
        handle = a.register_hook(lambda grad: seen.append(grad.tolist()))
        if not keep:
            handle.remove()
        with enable(tapes):
            (a * a).sum().backward()
        assert a.grad.tolist() == [2.0, 4.0]
        handle.remove()
    assert len(seen) == 3
    assert tapes.counters.captures == 2


def test_a_hook_that_removes_or_adds_one_that_comes_later() -> None:
    """What follows a hook is looked up by what is there then."""
    tapes = CompiledAutograd.of("reference")

    def once(change: str) -> list[str]:
        log: list[str] = []
        a = numbers()
        middle = a * 2
        end = middle.sin()
        handle = middle.register_hook(lambda grad: log.append("middle"))

        def hook(grad: Any) -> None:
            log.append("end")
            if change == "remove":
                handle.remove()
            elif change == "add":
                a.register_hook(lambda grad: log.append("added"))

        end.register_hook(hook)
        end.sum().backward()
        log.append(str(a.grad.tolist()))
        return log

    expected = {change: once(change) for change in ("", "remove", "add")}
    for change in ("", "remove", "add", "add", "", "remove", "add", ""):
        with enable(tapes):
            assert once(change) == expected[change], change
    assert tapes.counters.captures == 1
    assert tapes.counters.branches == 2


def test_a_function_whose_gradients_are_none_now_and_then() -> None:
    class Sometimes(al.autograd.Function):
        gives = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2 if Sometimes.gives else None

    tapes = CompiledAutograd.of("reference")
    for gives in (True, False, True, False, True):
        Sometimes.gives = gives
        a, b = numbers(), numbers(3.0, 4.0)
        with enable(tapes):
            (Sometimes.apply(a * b) + b.sin()).sum().backward()
        expected = [6.0, 8.0] if gives else None
        assert (None if a.grad is None else a.grad.tolist()) == expected
    assert tapes.counters.captures == 1
    assert tapes.counters.branches == 1


@pytest.mark.rules("CAG-17")
def test_anomaly_mode_looks_at_each_node() -> None:
    def make() -> Any:
        a = numbers(-1.0, 4.0)

        def program() -> None:
            with al.autograd.detect_anomaly():
                (a.sqrt() * 0).sum().backward()

        return program, [a]

    kind, text = worlds(make)
    assert kind == "AutogradError"
    assert "nan" in text
    tapes = CompiledAutograd.of("reference")
    with al.autograd.detect_anomaly(), enable(tapes):
        a = numbers()
        (a * a).sum().backward()
    assert (tapes.counters.skipped, tapes.counters.captures) == (1, 0)
