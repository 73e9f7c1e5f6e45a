"""What users call for effects: printing, callbacks, ops of their own; eager and compiled."""

from __future__ import annotations

import gc
import re
import weakref
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.base.modes import STATE
from aotlite.ir import dtypes
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.op.host_function import host_function_named
from aotlite.testing import laws
from tests.eager.helpers.listarrays import LISTS
from tests.helpers.own_ops import taken_out

BACKENDS = ("reference", "loops")


def ways(function: Any) -> list[Any]:
    """The function itself, and compiled in several ways."""
    found = [
        al.compile(function, backend=b, unlift_tokens=u) for b in BACKENDS for u in (True, False)
    ]
    return [function, *found]


class Kept:
    """What a callback was given. No container: those are guarded."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []

    def take(self, *arrays: Any) -> Any:
        """Keeps them; gives nothing."""
        self.arrays += arrays


# ---------------------------------------------------------------------------------------- printing
def test_print_formats_numbers_and_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        al.effects.print("sum {1:.2f} of {0}, {{braced}}", x, x.sum())
        al.effects.print("nothing")
        return x + 1

    for way in ways(f):
        assert [2.0, 3.5] == way(al.tensor([1.0, 2.5])).tolist()
        assert "sum 3.50 of [1.  2.5], {braced}\nnothing\n" == capsys.readouterr().out


WRONG_FORMATS = {
    "{} {}": "the format '{} {}' has 2 fields, expected 1, one for each tensor",
    "": "the format '' has 0 fields, expected 1, one for each tensor",
    "{1}": "the format '{1}' has 2 fields, expected 1, one for each tensor",
    "{name}": "the format is '{name}' (a field is named 'name'), expected one with fields that are "
    "empty or numbers",
    "{": "the format is '{' (Single '{' encountered in format string), expected one with fields "
    "that are empty or numbers",
    "{:.3f}": "the field {0:.3f} shows a tensor of shape (2,), expected one of no dimensions",
}


@pytest.mark.parametrize("text", WRONG_FORMATS)
def test_a_format_that_does_not_fit_is_refused_before_it_prints(text: str, capsys: Any) -> None:
    for way in (
        lambda x: al.effects.print(text, x),
        al.compile(lambda x: al.effects.print(text, x)),
    ):
        with pytest.raises(al.ArgumentError) as caught:
            way(al.ones(2))
        assert f"print_tensors: {WRONG_FORMATS[text]}" == str(caught.value)
    assert "" == capsys.readouterr().out


# --------------------------------------------------------------------------------------- callbacks
DTYPES = [
    dtypes.float32,
    dtypes.float64,
    dtypes.int64,
    dtypes.bool_,
    dtypes.bfloat16,
    dtypes.complex64,
    dtypes.uint8,
]
VIEWS: dict[str, Any] = {
    "itself": lambda x: x,
    "transposed": lambda x: x.t(),
    "a column": lambda x: x[:, 1],
    "an element": lambda x: x[1, 2],
    "nothing": lambda x: x[:0],
    "expanded": lambda x: x[:1].expand(4, 3),
}


@settings(max_examples=80)
@given(
    st.sampled_from(DTYPES), st.sampled_from(sorted(VIEWS)), st.sampled_from((*BACKENDS, "eager"))
)
def test_a_callback_gets_rows_in_order_and_gives_any_layout(
    dtype: Any, view: str, backend: str
) -> None:
    """Whatever lies how in memory: values, shape and dtype are the tensor's."""
    x = (al.arange(6.0).view(2, 3) - 2).to(dtype)
    shown = VIEWS[view](x)
    kept = Kept()

    def turned(array: Any) -> Any:
        kept.take(array)
        return np.asfortranarray(array)[..., ::-1][..., ::-1] if array.shape else array

    def f(x: Any) -> Any:
        y = VIEWS[view](x)
        return al.effects.callback(turned, y, results=y.meta.as_contiguous())

    result = (f if backend == "eager" else al.compile(f, backend=backend))(x)
    (array,) = kept.arrays
    assert (shown.shape, dtype.numpy) == (array.shape, array.dtype)
    assert shown.tolist() == array.tolist() == result.tolist()
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert tensor_meta(shown.shape, None, dtype) is result.meta


def test_what_a_callback_keeps_is_its_own() -> None:
    """Arguments and results are copies: later writes on either side are not seen on the other."""
    kept = Kept()
    held = np.ones(2, np.float32)

    def hold(array: Any) -> Any:
        kept.take(array)
        return held

    def f(x: Any) -> Any:
        y = al.effects.callback(hold, x, results="f32[2]")
        x.add_(10)
        y.mul_(5)
        return y

    for way in ways(f):
        x = al.zeros(2)
        y = way(x)
        y.add_(1)
        kept.arrays[-1][:] += 3
        assert ([10.0, 10.0], [6.0, 6.0], [1.0, 1.0]) == (x.tolist(), y.tolist(), held.tolist())
    assert all(each.tolist() == [3.0, 3.0] for each in kept.arrays)


def test_results_come_as_they_were_asked_for() -> None:
    def nothing(x: Any) -> Any:
        return al.effects.callback(lambda a: None, x)

    def several(x: Any) -> Any:
        give = lambda a: [a.sum().item(), al.tensor([1, 2]), a > 1]
        results = ["f64[]", tensor_meta((2,), None, dtypes.int64), "bool[2]"]
        return al.effects.callback(give, x, results=results)

    def alone(x: Any) -> Any:
        return al.effects.callback(lambda a: (a,), x, results=("f32[2]",))

    x = al.tensor([1.0, 2.0])
    for way in ways(nothing):
        assert way(x) is None
    for way in ways(several):
        total, tensor, mask = way(x)
        assert (3.0, dtypes.float64) == (total.item(), total.dtype)
        assert ([1, 2], [False, True]) == (tensor.tolist(), mask.tolist())
    for way in ways(alone):
        (result,) = way(x)
        assert [1.0, 2.0] == result.tolist()
        assert not result.requires_grad


WRONG_RESULTS: list[tuple[Any, Any, str]] = [
    ("f32[3]", lambda a: a, "result 0 of <lambda># is float32[2], expected f32[3]"),
    ("f64[2]", lambda a: a, "result 0 of <lambda># is float32[2], expected f64[2]"),
    ("f32[2]", lambda a: None, "result 0 of <lambda># is NoneType, expected f32[2]"),
    (("f32[2]", "f32[2]"), lambda a: (a,), "<lambda># gives 1 results, expected 2"),
    (("f32[2]", "f32[]"), lambda a: (a, "x"), "result 1 of <lambda># is str, expected f32[]"),
]


@pytest.mark.parametrize("case", range(len(WRONG_RESULTS)))
def test_a_callback_that_gives_something_else_is_named(case: int) -> None:
    results, function, text = WRONG_RESULTS[case]
    for way in ways(lambda x: al.effects.callback(function, x, results=results)):
        with pytest.raises(al.ArgumentError) as caught:
            way(al.ones(2))
        said = re.sub(r"#\d+", "#", str(caught.value))
        assert f"host_callback: {text}" == said


@pytest.mark.parametrize("results", ["f3", "f32[2]; f32[2]", 3, ("f32[2]", None), "f32[-1]"])
def test_results_that_say_nothing_are_refused(results: Any) -> None:
    with pytest.raises((al.ArgumentError, TypeError)):
        al.effects.callback(print, al.ones(2), results=results)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(al.ArgumentError, match="callback: the function is 3, expected a function"):
        al.effects.callback(3, al.ones(2))  # type: ignore[arg-type]


def test_a_callback_runs_in_the_same_modes_everywhere() -> None:
    """Without grad mode, hooks of saved tensors, or a capture; in forward and backward."""
    seen: deque[Any] = deque()

    def note(array: Any) -> Any:
        inner = al.compile(lambda t: t * 2)(al.tensor(array).requires_grad_())
        seen.append((al.is_grad_enabled(), STATE.recorder, STATE.watch, inner.requires_grad))

    class Loud(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            al.effects.callback(note, x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            al.effects.callback(note, grad)
            return grad * 2

    packed: Any = []
    for way in ways(lambda x: Loud.apply(x).sum()):
        seen.clear()
        with al.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            way(al.ones(2).requires_grad_()).backward()
        assert [(False, None, None, False)] * 2 == list(seen)
        with al.inference_mode():
            way(al.ones(2))
        assert 3 == len(seen)


def test_an_error_of_a_callback_is_the_calls() -> None:
    """Of its own class; what came before has happened, inputs and the generator are as before."""
    kept = Kept()

    def fail(array: Any) -> Any:
        raise ZeroDivisionError("mine")

    def f(x: Any) -> Any:
        x.add_(al.rand(2))
        al.effects.callback(kept.take, x)
        al.effects.callback(fail, x)
        al.effects.callback(kept.take, x)

    for compiled in ways(f)[1:]:
        al.manual_seed(3)
        x = al.zeros(2)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="mine"):
                compiled(x)
            assert ([0.0, 0.0], 0, (3, 0)) == (x.tolist(), x.version, al.get_rng_state())
    assert 8 == len(kept.arrays)


def test_a_backward_whose_effect_fails_can_run_again() -> None:
    class Failing(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            al.effects.callback(once, grad)
            return grad * 2

    calls = Kept()

    def once(array: Any) -> Any:
        calls.take(array)
        if len(calls.arrays) % 2:
            raise OSError("a full disk")

    for way in ways(lambda x: Failing.apply(x).sum()):
        x = al.ones(2).requires_grad_()
        y = way(x)
        with pytest.raises(OSError, match="a full disk"):
            y.backward(retain_graph=True)
        assert x.grad is None
        y.backward()
        grad: Any = x.grad
        assert [2.0, 2.0] == grad.tolist()


def test_containers_that_a_callback_changes_are_guarded_and_objects_are_not() -> None:
    """A list that the function can reach may be what it reads: it is compiled anew."""
    listed: list[Any] = []
    queued: deque[Any] = deque()
    counts = []
    for taken in (listed, queued):
        f = al.compile(lambda x, taken=taken: (al.effects.callback(taken.append, x), x * 2)[1])
        for _ in range(3):
            f(al.ones(2))
        counts.append(len(f.entries))
    g = al.compile(lambda x: (al.effects.callback(queued.append, x), x * 2)[1])
    for _ in range(3):
        g(al.ones(2))
    assert 1 == len(g.entries)
    assert (3, 6) == (len(listed), len(queued))


def test_a_function_lives_as_long_as_graphs_that_call_it() -> None:
    """And goes by one name for so long."""

    given: list[Any] = [lambda array: array]
    alive = weakref.ref(given[0])
    graph = al.capture(lambda x: al.effects.callback(given[0], x, results="f32[2]"))(al.ones(2))
    (call,) = [node for node in graph.calls if node.target.name == "host_callback"]
    held = call.args[0]
    name = held.name
    assert held is host_function_named(name)
    assert f'ops.host_function("{name}")' in graph.code
    given.clear()
    del held, call, graph
    gc.collect()
    assert alive() is None
    with pytest.raises(al.ArgumentError, match="expected that of a function that a graph of this"):
        host_function_named(name)


def test_calls_of_functions_that_are_made_anew_keep_none_alive() -> None:
    kept = []
    for _ in range(3):

        def give(array: Any) -> Any:
            return array

        al.effects.callback(give, al.ones(2), results="f32[2]")
        kept.append(weakref.ref(give))
    del give
    gc.collect()
    assert [None] * 3 == [each() for each in kept]


def test_values_on_another_device_come_to_the_host_and_go_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Functions see arrays of NumPy, whatever library the device has."""

    def f(x: Any) -> Any:
        al.effects.print("{} {}", x, x.sum())
        return al.effects.callback(lambda array: array.astype(np.int64) * 2, x, results="i64[2]")

    compiled = [al.compile(f, backend="reference", unlift_tokens=u) for u in (True, False)]
    each: list[Any] = [f, *compiled]
    for way in each:
        result = way(al.tensor([1.0, 2.0], device=LISTS))
        assert ([2, 4], LISTS) == (result.tolist(), result.device)
        assert "[1. 2.] 3.0\n" == capsys.readouterr().out


def test_the_convention_tells_of_effects() -> None:
    def f(x: Any) -> Any:
        al.effects.print("{}", x)
        return al.effects.callback(abs, x, results="f32[2]")

    text = al.inspect.explain_convention(al.inspect.stages_of(f, al.ones(2))["convention"])
    assert "A call has effects of type print and callback; each happens once and in order." in text


def test_calls_that_do_not_wait_for_a_compiler_let_each_happen_once() -> None:
    kept = Kept()
    f = al.compile(
        lambda x: (al.effects.callback(kept.take, x), x.exp() * 2)[1], backend="auto", wait=False
    )
    for count in range(1, 6):
        f(al.ones(3) * count)
        assert count == len(kept.arrays)
        assert [float(count)] * 3 == kept.arrays[-1].tolist()


def test_printed_graphs_run_on_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    """In both forms: `aotlite.ops` has the ops that take tokens, too."""

    def f(x: Any) -> Any:
        al.effects.print("x {}", x)
        return x * 2

    compiled = al.compile(f, backend="reference")
    compiled(al.ones(2))
    scope: dict[str, Any] = {"ops": al.ops}
    exec(compiled.forward_graph.code, scope)
    (result,) = scope["f"](al.zeros(2))
    assert [0.0, 0.0] == result.tolist()
    assert "x [1. 1.]\nx [0. 0.]\n" == capsys.readouterr().out


# --------------------------------------------------------------------------------- ops of one's o
def note(xp: Any, meta: Any, a: Any) -> None:
    """A kernel that does nothing."""


WRONG_OPS: dict[str, tuple[Any, str, str]] = {
    "a name that is none": (
        al.ArgumentError,
        "x_bad(Tensor self) -> ()",
        "register_op: argument 'effect' is 'Two words', expected a name in lower case, such as "
        "'log'",
    ),
    "parts of a pointwise op": (
        al.ArgumentError,
        "x_bad(Tensor self) -> Tensor",
        "register_op: x_bad has the effect 'mine' and argument 'scalar', expected one of them",
    ),
    "a formula for nothing": (
        al.ArgumentError,
        "x_bad(Tensor self) -> Tensor",
        "x_bad: a gradient formula has the parameter 'other', expected one of grad, result, "
        "result_meta, self, self_meta",
    ),
    "an in-place form": (
        al.ArgumentError,
        "x_bad(Tensor self) -> Tensor",
        "register_op: x_bad has the effect 'mine' and argument 'inplace', expected one of them",
    ),
    "a parameter's name": (
        al.ArgumentError,
        "x_bad(Tensor token) -> ()",
        "register_op: x_bad has the effect 'mine' and a parameter 'token', expected another name: "
        "that one is taken in pure graphs",
    ),
    "no effect and no results": (
        al.ArgumentError,
        "x_bad(Tensor self) -> ()",
        "register_op: x_bad has no results, expected an effect or some",
    ),
    "a meta of no results": (
        al.ArgumentError,
        "x_bad(Tensor self) -> ()",
        "register_op: the parts of x_bad are kernel and meta, expected kernel",
    ),
    "results without a meta": (
        al.ArgumentError,
        "x_bad(Tensor self) -> Tensor",
        "register_op: the parts of x_bad are kernel, expected kernel and meta",
    ),
}
MORE: dict[str, dict[str, Any]] = {
    "a name that is none": {"effect": "Two words"},
    "parts of a pointwise op": {"scalar": lambda a: a},
    "a formula for nothing": {"meta": lambda a: a, "vjp": {"self": lambda grad, other: grad}},
    "an in-place form": {"inplace": True, "meta": lambda a: a},
    "no effect and no results": {"effect": None},
    "a meta of no results": {"meta": lambda a: ()},
}


@pytest.mark.parametrize("name", WRONG_OPS)
def test_an_op_with_an_effect_that_does_not_fit_is_refused(name: str) -> None:
    kind, schema, text = WRONG_OPS[name]
    options = {"effect": "mine", "kernel": note, "vjp": None, **MORE.get(name, {})}
    with taken_out(), pytest.raises(kind) as caught:
        al.register_op(schema, **options)
    assert "with_effect_x_bad" not in OPS
    assert text == str(caught.value)


def test_an_effect_without_results_gives_none() -> None:
    """As a function, a method and from `register_op`; so that a hook may end with it."""
    with taken_out():
        op = al.register_op("x_note(Tensor self) -> ()", kernel=note, vjp=None, effect="mine")
        x: Any = al.ones(2)
        say: Any = al.effects.print
        for way in ways(lambda x: (op(x), x.x_note(), al.x_note(x), say("nothing"))):
            assert (None,) * 4 == way(x)


def test_the_laws_say_nothing_of_effects() -> None:
    with taken_out():
        op = al.register_op("x_note(Tensor self) -> ()", kernel=note, vjp=None, effect="mine")
        with pytest.raises(al.ArgumentError, match="x_note has the effect 'mine', expected an op"):
            laws.check_op(op)


def test_a_gradient_formula_with_effects_has_them_when_it_runs() -> None:
    """Also where no Python of the user's runs in the backward, and for second derivatives."""
    kept = Kept()
    with taken_out():
        al.register_op(
            "x_square(Tensor self) -> Tensor",
            meta=lambda a: a,
            kernel=lambda xp, meta, a: (kept.take(a), a * a)[1],
            vjp={"self": lambda grad, self: grad * 2 * self.x_square() / self},
            effect="mine",
        )
        f = lambda x: x.x_square().sum()
        for way in ways(f):
            kept.arrays.clear()
            x = al.tensor([3.0]).requires_grad_()
            way(x).backward()
            assert ([6.0], [[3.0], [3.0]]) == (x.grad.tolist(), [a.tolist() for a in kept.arrays])  # type: ignore[union-attr]
        kept.arrays.clear()
        x = al.tensor([3.0]).requires_grad_()
        grad: Any = al.autograd.grad(f(x), [x], create_graph=True)[0]
        second: Any = al.autograd.grad(grad.sum(), [x])[0]
        assert [2.0] == second.tolist()
        assert 3 == len(kept.arrays)
