"""Jacobians, Hessians and products with them, and the check by finite differences."""

import pytest

import aotlite as al
from tests.eager.helpers.both import leaf, raises, values


def two(x, w):
    return x * x * w, (w * w).sum()


def cubes(x, w):
    return (x * x * x * w).sum()


def shown(found):
    """Nested results as lists."""
    return [shown(each) for each in found] if isinstance(found, tuple) else found.tolist()


def ones(lib, *shape):
    return lib.ones(*(shape or (2,)), dtype=lib.float64)


@pytest.fixture
def given(lib):
    return leaf(lib, value=2.0), leaf(lib, value=3.0)


def test_products_with_a_jacobian_from_both_sides(lib, given):
    functional = lib.autograd.functional
    outputs, found = functional.vjp(two, given, (ones(lib), ones(lib, 1)[0]))
    assert [[12, 12], 18] == shown(outputs)
    assert [[12, 12], [4 + 6, 4 + 6]] == shown(found)
    outputs, found = functional.jvp(two, given, (ones(lib), ones(lib)))
    assert [[12 + 4, 12 + 4], 12] == shown(found)
    _, alone = functional.vjp(lambda x: x.sum(), given[0])
    assert [1, 1] == shown(alone)
    _, alone = functional.jvp(lambda x: x * 2, given[0], ones(lib))
    assert [2, 2] == shown(alone)


def test_jacobians_have_the_sizes_of_results_and_inputs(lib, given):
    jacobian = lib.autograd.functional.jacobian
    found = jacobian(two, given)
    assert [[[[12, 0], [0, 12]], [[4, 0], [0, 4]]], [[0, 0], [6, 6]]] == shown(found)
    assert [[[4, 0], [0, 4]]] == shown(jacobian(lambda x: (x * x,), given[0]))
    assert [[[4, 0], [0, 4]]] == shown(jacobian(lambda x: x * x, (given[0],)))
    assert (2, 2, 4) == tuple(jacobian(lambda x: x.view(2, 2), leaf(lib, 4)).shape)


def test_hessians_and_products_with_them(lib, given):
    functional = lib.autograd.functional
    expected = [[[[36, 0], [0, 36]], [[12, 0], [0, 12]]], [[[12, 0], [0, 12]], [[0, 0], [0, 0]]]]
    assert expected == shown(functional.hessian(cubes, given))
    assert [[36, 0], [0, 36]] == shown(functional.hessian(lambda x: cubes(x, 3.0), given[0]))
    for product in (functional.hvp, functional.vhp):
        value, found = product(cubes, given, (ones(lib), ones(lib)))
        assert (48, [[48, 48], [12, 12]]) == (value.item(), shown(found))


def test_what_is_found_has_a_history_only_on_request(lib, given):
    functional = lib.autograd.functional
    for name, v in (("vjp", ()), ("vhp", (ones(lib),)), ("hvp", (ones(lib),)), ("jacobian", ())):
        function = getattr(functional, name)
        for create_graph in (False, True):
            found = function(lambda x: cubes(x, 3.0), given[0], *v, create_graph=create_graph)
            parts = found if isinstance(found, tuple) else (found,)
            assert {create_graph} == {t.requires_grad for t in parts}, name
    found = functional.jacobian(lambda x: cubes(x, 3.0), given[0], create_graph=True)
    found.sum().backward()
    assert [[36, 36]] == values(given[0].grad)


def test_independence_is_zeros_or_an_error(lib, given):
    functional = lib.autograd.functional
    x, _ = given
    constant = lib.ones(2, dtype=lib.float64)
    assert [[0, 0], [0, 0]] == shown(functional.jacobian(lambda x: constant, x))
    assert [[1, 1], [0, 0]] == shown(functional.vjp(lambda x, w: x.sum(), given)[1])
    with raises(lib, RuntimeError, "^jacobian: result 0 does not depend on the inputs, expected"):
        functional.jacobian(lambda x: constant, x, strict=True)
    with raises(lib, RuntimeError, "^vjp: the results do not depend on input 1, expected them to"):
        functional.vjp(lambda x, w: x.sum(), given, strict=True)


def test_bad_arguments_are_named(lib, given):
    functional = lib.autograd.functional
    x, _ = given
    with raises(lib, TypeError, "^vjp: argument 'inputs' is 3, expected a tensor or tensors"):
        functional.vjp(two, 3)
    with raises(lib, TypeError, "^vjp: the result of the function is 3, expected a tensor or"):
        functional.vjp(lambda x: 3, x)
    with raises(lib, RuntimeError, "^vjp: argument 'v' is None, expected a tensor like f64.2."):
        functional.vjp(lambda x: x * 2, x)
    with raises(lib, RuntimeError, "^hessian: the function gives .*, expected one tensor of one"):
        functional.hessian(lambda x: x * 2, x)


def test_a_vector_has_the_shapes_of_what_it_stands_for():
    """In PyTorch this is a RuntimeError."""
    x = leaf(al)
    with pytest.raises(al.ShapeError, match="^vjp: argument 'v' has shapes .*, expected"):
        al.autograd.functional.vjp(lambda x: x * 2, x, al.ones(3))
    with pytest.raises(al.UnsupportedError, match="'strategy' is 'forward-mode', expected"):
        al.autograd.functional.jacobian(lambda x: x, x, strategy="forward-mode")


def test_an_empty_result_has_an_empty_jacobian():
    """In PyTorch this is an error of `stack`."""
    assert (0, 2) == al.autograd.functional.jacobian(lambda x: x[:0], leaf(al)).shape


def test_functional_works_on_compiled_functions():
    """Second derivatives too (DBL-2)."""
    x = leaf(al, value=2.0)
    f = al.compile(lambda x: x * x)
    assert [[4, 0], [0, 4]] == al.autograd.functional.jacobian(f, x).tolist()
    total = al.compile(lambda x: (x * x).sum())
    assert [[2, 0], [0, 2]] == al.autograd.functional.hessian(total, x).tolist()


# ------------------------------------------------------------------------------------- gradcheck
def wrong(lib, factor):
    """A function whose gradient is off by a factor."""

    class Wrong(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * factor

    return Wrong.apply


def test_right_gradients_pass(lib):
    """Complex ones too, several inputs and results, and inputs that are not differentiated."""
    check, again = lib.autograd.gradcheck, lib.autograd.gradgradcheck
    x, w = leaf(lib, value=2.0), leaf(lib, value=3.0)
    z = lib.tensor([1 + 2j, 2 - 1j], dtype=lib.complex128, requires_grad=True)
    for function, inputs in (
        (two, (x, w)),
        (two, (x, w.detach())),
        (lambda x: x[::2].exp(), leaf(lib, 4)),
        (lambda z: z * z, z),
        (lambda z: (z * z.conj()).real, z) if hasattr(z, "conj") else (two, (x, w)),
    ):
        assert check(function, inputs)
        assert again(function, inputs)
    assert again(two, (x, w), gen_non_contig_grad_outputs=True)
    assert again(two, (x, w), (leaf(lib), leaf(lib, 1)[0]))
    assert [[2, 2], [3, 3]] == values(x, w)


@pytest.mark.parametrize("factor", [1, 3, -2])
def test_wrong_gradients_fail_and_show_both_jacobians(lib, factor):
    x = leaf(lib)
    assert not lib.autograd.gradcheck(wrong(lib, factor), x, raise_exception=False)
    text = r"(?s)^gradcheck: the Jacobian of result 0 with respect to input 0 .*numerical:.*analyt"
    with raises(lib, RuntimeError, text):
        lib.autograd.gradcheck(wrong(lib, factor), x)


def test_a_wrong_second_derivative_fails(lib):
    """The first is right."""

    class Squared(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x.detach()
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.x

    x = leaf(lib, value=2.0)
    assert lib.autograd.gradcheck(Squared.apply, x)
    assert not lib.autograd.gradgradcheck(Squared.apply, x, raise_exception=False)


def test_a_function_without_history_is_constant_or_fails(lib):
    """That no gradient flows says that it is zero."""
    x = leaf(lib)
    assert lib.autograd.gradcheck(lambda x: (lib.ones(2), (x > 3) * 1), x)
    assert not lib.autograd.gradcheck(lambda x: x.detach() * 2, x, raise_exception=False)
    text = "^gradcheck: the Jacobian of result 1 with respect to input 0 "
    with raises(lib, RuntimeError, text):
        lib.autograd.gradcheck(lambda x: (lib.ones(2), x.detach() * 2), x)


def test_gradients_that_change_from_run_to_run_fail(lib):
    times = iter(range(1000))

    class Drifting(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * (2 + 1e-7 * next(times))

    x = leaf(lib)
    assert not lib.autograd.gradcheck(Drifting.apply, x, raise_exception=False)
    assert lib.autograd.gradcheck(Drifting.apply, x, nondet_tol=1e-3)


def test_inputs_of_the_check_are_checked(lib):
    with raises(lib, ValueError, "^gradcheck: no input requires grad, expected one that does"):
        lib.autograd.gradcheck(lambda x: x * 2, lib.ones(2, dtype=lib.float64))
    wide = leaf(lib, 1).expand(3)
    with raises(lib, RuntimeError, "^gradcheck: input 0, f64.3..0., overlaps itself, expected"):
        lib.autograd.gradcheck(lambda x: x * 2, wide)
