"""Programs with wrappers under options: other partitions, checked stages, other ways of calling."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.ir.errors import SubclassError
from aotlite.ir.meta import tensor_meta
from aotlite.sharding import Mesh, Partial, ShardedTensor
from aotlite.stages.s10_runtime.subclass_code import fitted
from aotlite.subclasses import TwoTensor
from tests.stages.wrappers.helpers.cases import CASES, nested, two
from tests.stages.wrappers.helpers.worlds import world_after

OPTIONS: dict[str, dict[str, Any]] = {
    "verified": {"verify": True},
    "partition": {"partition": "default"},
    "min-cut": {"partition": "min_cut"},
    "general ways": {"fast_paths": False},
    "writes kept": {"keep_inference_input_mutations": True},
    "loops": {"backend": "loops"},
}


@pytest.mark.thinned(6)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_programs_with_wrappers_are_eagers_under_options(options: dict[str, Any]) -> None:
    """GEN-11: each stage's graph, from the fifth on, is compared with the captured one."""
    for function, make in CASES.values():
        expected = world_after(function, make)
        compiled = al.compile(function, **{"backend": "reference", **options})
        assert world_after(compiled, make) == expected
        assert world_after(compiled, make) == expected


@pytest.mark.rules("SUB-3", "SUB-13")
def test_the_metadata_says_what_wrappers_are_made_of() -> None:
    """SUB-3, SUB-13."""
    compiled = al.compile(lambda x, y: (x * 2, y.mul_(2)[1:], (x * 3)[1:], (x * 3)[2:]))
    compiled(nested(), two())
    text = compiled.meta.explain()
    assert "primals_0__a__b is argument 0.a.b, f32[6]; it does not require grad." in text
    made = "a.a=primals_0__a__a, a.b=primals_0__a__b, b.a=primals_0__b__a, b.b=primals_0__b__b"
    assert f"primals_0 is a TwoTensor(f32[6], {made})." in text
    assert "Part output_0__a__a is new memory, f32[6]." in text
    assert "Result 1 is a view of argument 1" in text
    assert "because part output_2__a" in text


@pytest.mark.rules("SUB-19")
def test_parts_of_static_arguments_are_static() -> None:
    """Also those that are saved, in the backward."""
    seen: dict[str, set[str]] = {}

    def compiler(graph: Any, inputs: Any) -> Any:
        seen[graph.name] = {str(each.role) for each in inputs if each.static}
        return graph

    def product(w: Any, x: Any) -> Any:
        return (w * x).exp()

    aot = al.aot_function(product, compiler, num_params_buffers=1)
    out = aot(two(grad=True), two(grad=True))
    out.backward(two())
    assert seen["product_forward"] == {"primals_0__a", "primals_0__b"}
    assert len(seen["product_backward"]) == 2


@pytest.mark.rules("SUB-1")
def test_outer_strides_are_those_that_were_asked_for() -> None:
    """Parts with a dimension of one element may lie otherwise than in eager."""
    pair, asked = two(1, 3), tensor_meta((1, 3), (1, 1))
    assert pair.meta is not asked
    fitted(pair, TwoTensor, asked)
    assert pair.meta is asked
    for wrong in (tensor_meta((3,)), tensor_meta((1, 3), (3, 1), al.float64)):
        with pytest.raises(SubclassError, match="TwoTensor.__tensor_unflatten__ gives a TwoTensor"):
            fitted(two(1, 3), TwoTensor, wrong)


@pytest.mark.rules("TAN-8", "SUB-11")
@pytest.mark.parametrize("chosen", [0, 1])
def test_a_gradient_of_one_of_two_results_that_are_summed_otherwise(chosen: int) -> None:
    """What is left of a sum lies as the summand does: views of it are laid out before they are
    taken, and its spec is its own.
    """
    factor = al.tensor([[1.0, 2.0], [3.0, 4.0]])

    def turned(y: Any) -> Any:
        t = y.t()
        return t * TwoTensor(factor, factor), y * t

    def placed(x: Any) -> Any:
        return x * x, x * 1

    def gradient(function: Any, x: Any) -> Any:
        out = function(x)[chosen]
        out.backward(al.ones_like(out))
        grad = x.grad
        return [grad.full_tensor() if isinstance(grad, ShardedTensor) else grad.a]

    def sharded() -> Any:
        return ShardedTensor.from_dense(al.arange(2.0), Mesh(2), Partial()).requires_grad_()

    for function, make in ((turned, lambda: two(2, 2, grad=True)), (placed, sharded)):
        (expected,) = gradient(function, make())
        (found,) = gradient(al.compile(function), make())
        assert found.tolist() == expected.tolist()


@pytest.mark.rules("SUB-20")
def test_set_of_wrappers_is_refused_in_a_compiled_function() -> None:
    x, y = two(), two()
    for arguments in ((x, al.zeros(2)), (x, y), (al.zeros(2), y)):
        with pytest.raises(SubclassError, match="set_: the tensor is a TwoTensor, expected one w"):
            al.compile(lambda a, b: a.set_(b))(*arguments)
    assert (x.shape, x.version) == ((6,), 0)


def test_wrappers_that_are_only_made_inside_are_no_matter_to_checks() -> None:
    """GEN-10: their nodes cannot be run again; the stages behind are compared all the same."""

    def f(x: Any) -> Any:
        pair = TwoTensor(x.detach() * 1, x.detach() + 1) * 2
        al.effects.print("{}", pair.sum())
        return x * pair.a

    compiled = al.compile(f, backend="reference", verify=True)
    x = al.ones(2).requires_grad_()
    assert f(x).tolist() == compiled(x).tolist() == [2.0, 2.0]
