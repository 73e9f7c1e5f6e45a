"""Compiled functions of wrappers, against eager: SUB-2..SUB-17, SUB-20."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.ir.errors import SubclassError, TangentError, UnsupportedError
from aotlite.subclasses import MaskedTensor, TwoTensor, inner_tensors
from tests.stages.wrappers.helpers.cases import CASES, dense, two
from tests.stages.wrappers.helpers.worlds import check_like_eager


@pytest.mark.rules(
    "SUB-9", "SUB-13", "SUB-15", "SUB-16", "SUB-17", "SUB-20", "DUP-4", "META-15", "META-18"
)
@pytest.mark.thinned(9)
@pytest.mark.parametrize("name", CASES)
def test_a_compiled_function_of_wrappers_leaves_eagers_world(name: str) -> None:
    """SUB-2..SUB-17."""
    check_like_eager(*CASES[name])


# --------------------------------------------------------------------------------- outside, guards
def parts_of(wrapper: Any) -> list[Any]:
    return [part.tolist() for part in inner_tensors(wrapper).values()]


OUTSIDE = two(start=3.0)


def test_wrappers_from_outside_are_hidden_inputs() -> None:
    """CAP-3 for wrappers."""

    def scaled(x: Any) -> Any:
        return x * OUTSIDE

    check_like_eager(scaled, lambda: (two(grad=True),))


def test_a_wrapper_from_outside_is_written() -> None:
    kept = two(start=3.0)

    def added(x: Any) -> Any:
        kept.add_(x)
        return kept

    compiled = al.compile(added)
    assert compiled(two()) is kept
    assert compiled(two()) is kept
    assert (kept.version, kept.a.version) == (2, 2)
    assert kept.a[0].item() == pytest.approx(3.6)


@pytest.mark.rules("SUB-4")
def test_graphs_have_dense_tensors_only() -> None:
    """SUB-4: the flat order is that of the arguments, parts in the order of names, depth first."""
    compiled = al.compile(lambda x, d, y: (y * x, d + 1))
    compiled(two(grad=True), dense(), nested_pair := two(start=2.0))
    names = [str(node.role) for node in compiled.forward_graph.placeholders]
    assert names == ["primals_0__a", "primals_0__b", "primals_1", "primals_2__a", "primals_2__b"]
    roles = [str(role) for role in compiled.forward_graph.output_roles]
    assert roles[:3] == ["output_1", "output_0__a", "output_0__b"]
    assert nested_pair.version == 0


@pytest.mark.rules("SUB-2")
def test_programs_without_wrappers_have_no_code_for_them() -> None:
    """SUB-2."""
    compiled = al.compile(lambda x: x * 2)
    compiled(dense())
    assert "__tensor_flatten__" not in compiled.source


class Scaled(al.Tensor):
    """A tensor times a number, which is its spec."""

    inner: al.Tensor
    by: float

    def __new__(cls, inner: al.Tensor, by: float) -> Scaled:
        made: Any = al.Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), dtype=inner.dtype
        )
        made.inner, made.by = inner, by
        return made

    def __tensor_flatten__(self) -> Any:
        return ["inner"], self.by

    @staticmethod
    def __tensor_unflatten__(inner: Any, spec: Any, size: Any, stride: Any) -> Scaled:
        return Scaled(inner["inner"], spec)

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is al.ops.mul and type(args[1]) is float:
            return Scaled(args[0].inner.clone(), args[0].by * args[1])
        plain = [a.inner * a.by if isinstance(a, Scaled) else a for a in args]
        return func(*plain, **kwargs)


@pytest.mark.rules("SUB-21")
def test_another_spec_is_another_entry() -> None:
    """SUB-21."""
    compiled = al.compile(lambda x: x * 2.0 + 1)
    for by, entries in ((2.0, 1), (3.0, 2), (2.0, 2)):
        found = compiled(Scaled(dense(), by))
        assert found.tolist() == (dense() * (by * 2) + 1).tolist()
        assert len(compiled.entries) == entries


class Lifted(TwoTensor):
    """A pair with which plain tensors mix: they stand for themselves twice."""

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        def part(value: Any, name: str) -> Any:
            return getattr(value, name) if isinstance(value, Lifted) else value

        a, b = (func(*[part(each, name) for each in args], **kwargs) for name in ("a", "b"))
        return Lifted(a, b)


@pytest.mark.rules("SUB-7", "SUB-10", "SUB-11")
def test_a_dense_operand_has_the_gradient_that_its_wrapper_gives_it() -> None:
    """SUB-11: which gradients are wrappers is learnt when the backward is recorded."""

    def run(function: Any) -> list[Any]:
        x = Lifted(dense(), dense(start=2.0), requires_grad=True)
        d = dense(start=1.0).requires_grad_()
        out = function(x, d)
        out.backward(Lifted(dense(), dense()))
        assert type(x.grad) is Lifted
        assert type(d.grad) is Lifted
        return [type(out.grad_fn).__name__, *map(parts_of, (out, x.grad, d.grad))]

    eager, compiled = run(lambda x, d: x * d), run(al.compile(lambda x, d: x * d))
    assert compiled[0] == "CompiledBackward"
    assert compiled[1:] == eager[1:]


@pytest.mark.rules("SUB-21")
def test_another_class_is_another_entry() -> None:
    """SUB-21."""
    compiled = al.compile(lambda x: x * 2.0)
    assert type(compiled(dense())) is al.Tensor
    assert type(compiled(two())) is TwoTensor
    assert type(compiled(Scaled(dense(), 3.0))) is Scaled
    assert len(compiled.entries) == 3


def test_parts_of_another_shape_are_another_entry() -> None:
    compiled = al.compile(lambda x: x * 2)
    compiled(two())
    compiled(two(2, 2))
    assert len(compiled.entries) == 2


# ---------------------------------------------------------------------------------------- tangents
@pytest.mark.rules("TAN-5")
def test_a_plain_gradient_for_a_wrapper_names_both_classes() -> None:
    """TAN-5."""
    compiled = al.compile(lambda x: x * 2)
    out = compiled(two(grad=True))
    with pytest.raises(TangentError, match="gradient of output_0 is a Tensor, expected a TwoTenso"):
        out.backward(al.ones(6))


@pytest.mark.rules("TAN-5")
def test_a_wrapper_as_the_gradient_of_a_dense_result_names_both_classes() -> None:
    """TAN-5."""
    compiled = al.compile(lambda x: x * 2)
    out = compiled(dense().requires_grad_())
    with pytest.raises(TangentError, match="is a TwoTensor of spec None, expected a Tensor, w"):
        out.backward(two())


@pytest.mark.rules("TAN-4")
def test_a_gradient_whose_parts_lie_otherwise_is_laid_out() -> None:
    """TAN-4: outer and inner layouts are those of the result."""
    compiled = al.compile(lambda x: x * 2)
    x, y = two(2, 3, grad=True), two(2, 3, grad=True)
    turned = [dense((3, 2)).t(), dense((3, 2), 1.0).t()]
    compiled(x).backward(TwoTensor(*turned))
    (y * 2).backward(TwoTensor(*turned))
    assert parts_of(x.grad) == parts_of(y.grad)


class Changed(TwoTensor):
    """Its gradients may be made pairs of another class."""

    def __coerce_same_metadata_as_tangent__(self, spec: Any, kind: Any) -> Any:
        return kind(self.a, self.b) if kind is TwoTensor else self.a + self.b


@pytest.mark.rules("TAN-5")
def test_a_gradient_of_another_class_may_become_one_of_the_results() -> None:
    """TAN-5."""
    compiled = al.compile(lambda x: x * 2)
    x = two(grad=True)
    compiled(x).backward(Changed(dense(), dense(start=1.0)))
    assert type(x.grad) is TwoTensor
    assert x.grad.b.tolist() == (dense(start=1.0) * 2).tolist()
    y = dense().requires_grad_()
    compiled(y).backward(Changed(dense(), dense(start=1.0)))
    assert y.grad is not None
    assert y.grad.tolist() == ((dense() + dense(start=1.0)) * 2).tolist()


class Summed(TwoTensor):
    """Wants dense gradients."""

    def __coerce_tangent_metadata__(self) -> Any:
        return self.a + self.b


@pytest.mark.rules("TAN-6")
def test_a_class_says_in_which_form_it_wants_gradients() -> None:
    """TAN-6: what it does for that is not part of the graph."""
    compiled = al.compile(lambda x: Summed(x.a * 2, x.b * 2) * x)
    x = two(grad=True)
    out = compiled(x)
    assert type(out) is Summed
    out.backward(al.ones(6))
    graph = compiled.backward_graph
    assert graph is not None
    assert [str(role) for role in graph.output_roles] == ["grad_primals_0__a", "grad_primals_0__b"]


@pytest.mark.rules("TAN-8")
def test_results_of_which_no_gradient_comes_are_left_out() -> None:
    """TAN-8."""
    compiled = al.compile(lambda x, y: (x * 2, y * 3))
    x, y = two(grad=True), two(grad=True)
    compiled(x, y)[0].backward(two())
    assert y.grad is None
    assert parts_of(x.grad) == parts_of(two() * 2)


# --------------------------------------------------------------------------------------- bad input
@pytest.mark.rules("SUB-1")
def test_a_broken_class_is_named_before_anything_is_written() -> None:
    class Forgetful(TwoTensor):
        """Rebuilds another geometry."""

        @classmethod
        def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Any:
            return cls(inner["a"][:2], inner["b"][:2])

    x = Forgetful(dense(), dense())

    def write(x: Any) -> Any:
        return x.mul_(2)

    with pytest.raises(SubclassError, match="Forgetful: it unflattens to shape"):
        al.compile(write)(x)
    assert x.a.tolist() == dense().tolist()
    assert x.version == 0


@pytest.mark.rules("SUB-21")
def test_a_spec_that_does_not_equal_itself_is_refused() -> None:
    """SUB-21."""
    with pytest.raises(SubclassError, match="Scaled: it flattens to the spec nan"):
        al.compile(lambda x: x + 1)(Scaled(dense(), float("nan")))


@pytest.mark.rules("SUB-23")
def test_a_dispatch_that_gives_a_tensor_from_elsewhere_is_refused() -> None:
    kept = dense()

    class Elsewhere(TwoTensor):
        """Gives a tensor that no op made."""

        @classmethod
        def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            return kept

    with pytest.raises(SubclassError, match="Elsewhere.__tensor_dispatch__ gives"):
        al.compile(lambda x: x + 1)(Elsewhere(dense(), dense()))


@pytest.mark.rules("SUB-20", "META-4")
def test_geometry_and_memory_of_a_wrapper_stay() -> None:
    """SUB-20."""
    x = two(2, 3)
    with pytest.raises(SubclassError, match="t_: the tensor is a TwoTensor"):
        al.compile(lambda x: x.t_())(x)
    assert x.shape == (2, 3)


def test_a_wrapper_of_a_capture_is_of_no_use_outside() -> None:
    kept = []

    def keep(x: Any) -> Any:
        kept.append(x * 2)
        return x * 1

    compiled = al.compile(keep)
    compiled(two())
    with pytest.raises(UnsupportedError):
        compiled(kept[0])


@pytest.mark.rules("TAN-4")
def test_a_gradient_with_a_part_of_another_shape_names_class_and_attribute() -> None:
    compiled = al.compile(lambda x: x * 2)
    x = two(grad=True)
    out = compiled(x)
    grad = TwoTensor(dense(), dense())
    grad.b = dense((2,))
    with pytest.raises(TangentError, match=r"attribute 'b' is a Tensor, f32\[2\], expected a"):
        out.backward(grad, retain_graph=True)
    grad.b = two()
    with pytest.raises(TangentError, match="'b' is a TwoTensor of spec None, f32"):
        out.backward(grad, retain_graph=True)
    assert x.grad is None
    out.backward(two())
    assert x.grad is not None


class Fickle(TwoTensor):
    """Unflattens to what its class attribute says."""

    gives: Any = None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Any:
        return Fickle(inner["a"], inner["b"]) if cls.gives is None else cls.gives(inner)


@pytest.mark.rules("SUB-1", "SUB-5")
def test_a_class_that_changes_its_mind_is_named_at_the_call(monkeypatch: Any) -> None:
    """What it makes of parts is checked each time."""
    compiled = al.compile(lambda x: x * 2)
    x = Fickle(dense(), dense())
    assert type(compiled(x)) is Fickle
    monkeypatch.setattr(Fickle, "gives", lambda inner: TwoTensor(inner["a"], inner["b"]))
    with pytest.raises(SubclassError, match="Fickle.__tensor_unflatten__ gives a TwoTensor, f32"):
        compiled(x)
    monkeypatch.setattr(Fickle, "gives", lambda inner: Fickle(inner["a"][:2], inner["b"][:2]))
    with pytest.raises(SubclassError, match=r"gives a Fickle, f32\[2\], expected a Fickle, f32\[6"):
        compiled(x)


class Several(al.Tensor):
    """As many parts as it is made with."""

    def __new__(cls, *parts: al.Tensor) -> Any:
        made = al.Tensor._make_wrapper_subclass(cls, parts[0].shape, dtype=parts[0].dtype)
        made.count = len(parts)
        for number, part in enumerate(parts):
            setattr(made, f"p{number}", part)
        return made

    def __tensor_flatten__(self) -> Any:
        return [f"p{number}" for number in range(self.count)], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, spec: Any, size: Any, stride: Any) -> Any:
        return Several(*inner.values())

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        whole = args[0]
        parts = inner_tensors(whole).values()
        return Several(*[func(part, *args[1:], **kwargs) for part in parts])


@pytest.mark.rules("SUB-21")
def test_another_number_shape_or_dtype_of_parts_is_another_entry() -> None:
    """SUB-21: what is computed is eager's each time."""
    compiled = al.compile(lambda x: x * 2)
    kinds = [
        (dense(), dense()),
        (dense(), dense(), dense()),
        (dense(), dense((2,))),
        (dense(), dense().to(al.float64)),
    ]
    for number, parts in enumerate(kinds):
        for _ in range(2):
            found, expected = compiled(Several(*parts)), Several(*parts) * 2
            assert parts_of(found) == parts_of(expected)
            assert found.p1.dtype is parts[1].dtype
        assert len(compiled.entries) == number + 1


def masked() -> al.Tensor:
    mask = al.tensor([[True, True], [False, True]])
    return MaskedTensor(al.tensor([[1.0, 2.0], [3.0, 4.0]]), mask).requires_grad_()


@pytest.mark.rules("TAN-8")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("chosen", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("write", [False, True])
def test_gradients_that_do_not_arrive_are_no_summands(chosen: Any, write: bool) -> None:
    """A wrapper of zeros would be masked everywhere, and mask what it is added to."""

    def both(x: Any) -> Any:
        y = x * 1
        if write:
            y.mul_(y)
        return y.sum(1), y * 3

    def gradient(function: Any) -> Any:
        x = masked()
        found = function(x)
        losses = [(found[k] * found[k]).sum() for k in chosen]
        al.autograd.backward(losses, [al.ones_like(loss) for loss in losses])
        assert x.grad is not None
        return parts_of(x.grad)

    expected = gradient(both)
    for backend in ("reference", "cpu"):
        assert gradient(al.compile(both, backend=backend)) == expected
