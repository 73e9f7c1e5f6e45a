"""Flaws of PyTorch's functionalization that are none here, each by its smallest program (FUN)."""

import pytest

import aotlite as al


@pytest.mark.rules("FUN-8", "TEN-7")
def test_a_write_of_an_expanded_input_is_refused(way):
    """PyTorch adds up the differences of all three copies."""
    x = way.tensor([[1.0, 1.0, 1.0]])
    call = way.compiled(lambda x: x.expand(3, 3).mul_(2))
    got = way.outcome(lambda: call(x).tolist())
    here, pytorch = ("raises RuntimeError", [[1] * 3]), ([[4] * 3] * 3, [[4] * 3])
    way.shows((got, x.tolist()), here, pytorch=pytorch)


@pytest.mark.rules("FUN-9")
def test_a_write_of_windows_keeps_what_lies_between_them(way):
    """#198102: PyTorch's inverse of `unfold` writes zeros there. A19."""
    x = way.arange(2, 6, start=1)

    def double(x):
        windows = x.unfold(1, 1, 5)
        windows.add_(windows)
        return x

    got = way.compiled(double)(x).tolist()
    here = [[2, 2, 3, 4, 5, 12], [14, 8, 9, 10, 11, 24]]
    way.shows(got, here, pytorch=[[2, 0, 0, 0, 0, 12], [14, 0, 0, 0, 0, 24]])


@pytest.mark.rules("FUN-9", "TEN-7")
def test_a_write_of_windows_that_overlap_is_refused(way):
    """PyTorch's eager mode multiplies twice what lies in two windows."""
    x = way.arange(4)
    call = way.compiled(lambda x: x.unfold(0, 2, 1).mul_(2))
    got = way.outcome(lambda: call(x).tolist())
    here = "raises RuntimeError", [0, 1, 2, 3]
    way.shows((got, x.tolist()), here, eager=([[0, 4], [4, 8], [8, 6]], [0, 4, 8, 6]))


@pytest.mark.rules("FUN-9", "TEN-7")
def test_windows_of_no_elements_share_none(way):
    """They may be written, and differentiated. PyTorch refuses to compile it."""
    x = way.lib.ones(0, 4, dtype=way.lib.float64, requires_grad=True)

    def zero(x):
        y = x * 1
        y.unfold(1, 2, 1).zero_()
        return y

    def run():
        way.compiled(zero)(x).sum().backward()
        return tuple(x.grad.shape)

    way.shows(way.outcome(run), (0, 4), pytorch="raises RuntimeError")


@pytest.mark.rules("FUN-11")
def test_a_write_through_as_strided_of_a_view(way):
    """#104505: as_strided looks at the storage, not at the diagonal."""
    x = way.arange(2, 2)
    call = way.compiled(lambda x: x.diagonal().as_strided((2,), (1,), 0).add_(1) * 1)
    got = way.outcome(lambda: call(x).tolist())
    here = [1, 2], [[1, 2], [2, 3]]
    way.shows((got, x.tolist()), here, pytorch=("raises RuntimeError", [[0, 1], [2, 3]]))


@pytest.mark.rules("FUN-12")
def test_what_replaces_a_written_input_has_its_strides(way):
    """#133512. A20."""
    x = way.arange(10)[::2]

    def read(x):
        x.add_(1)
        return way.lib.as_strided_copy(x, (3,), (2,))

    way.shows(way.compiled(read)(x).tolist(), [1, 3, 5], pytorch=[1, 5, 9])


@pytest.mark.rules("FUN-13")
def test_dropout_that_does_not_train_gives_its_argument(way):
    """#195422: a write of the result is one of the argument."""
    x = way.arange(3)

    def double(x):
        y = way.lib.nn.functional.dropout(x, 0.5, training=False)
        y += y
        return y

    told = way.compiled(double)(x).tolist(), x.tolist()
    way.shows(told, ([0, 2, 4], [0, 2, 4]), pytorch=([0, 2, 4], [0, 1, 2]))


@pytest.mark.rules("FUN-13")
@pytest.mark.parametrize(
    "same",
    [
        lambda lib, x: x.to(x.dtype),
        lambda lib, x: x.contiguous(),
        lambda lib, x: x.reshape(3),
    ],
    ids=["to", "contiguous", "reshape"],
)
def test_a_write_reaches_the_argument_that_an_op_gave_back(way, same):
    """#195422."""
    x = way.arange(3)

    def double(x):
        y = same(way.lib, x)
        y += y
        return y

    got = way.compiled(double)(x)
    assert ([0, 2, 4], [0, 2, 4]) == (got.tolist(), x.tolist())


@pytest.mark.rules("FUN-21")
@pytest.mark.parametrize(
    "shape, pytorch",
    [
        ((2, 2), (None, [[0, 4], [2, 6]], (2, 1))),
        ((2, 3), ("raises RuntimeError", [[0, 1, 2], [3, 4, 5]], (3, 1))),
    ],
    ids=["square", "oblong"],
)
def test_geometry_and_bytes_change_together_under_no_grad(way, shape, pytorch):
    """PyTorch leaves both in the graph, and the input keeps its strides."""
    x = way.leaf([[0.0] * shape[1]] * shape[0])
    with way.lib.no_grad():
        x.add_(way.arange(*shape))

    def turn(x):
        with way.lib.no_grad():
            x.t_()
            x.mul_(2)

    call = way.compiled(turn)
    got = way.outcome(lambda: call(x))
    here = (None, (way.arange(*shape).t() * 2).tolist(), (1, shape[1]))
    way.shows((got, x.tolist(), tuple(x.stride())), here, pytorch=pytorch)


@pytest.mark.rules("FUN-23")
def test_a_write_counts_as_often_as_it_does_in_eager(way):
    x = way.arange(2)
    before = way.version(x)
    way.compiled(lambda x: x.mul_(2) + 1)(x)
    way.shows(way.version(x) - before, 1, pytorch=2)


@pytest.mark.rules("FUN-24")
def test_a_returned_input_stands_at_its_own_place(way):
    """PyTorch puts `y` where the new bytes of `x` should be. A29."""
    x, y = way.leaf([1.0, 2.0]).clone(), way.tensor([10.0, 20.0])

    def write_both(x, y):
        x.add_(1)
        y.mul_(3)
        return y

    got = way.compiled(write_both)(x, y)
    told = x.tolist(), y.tolist(), got is y
    way.shows(told, ([2, 3], [30, 60], True), pytorch=([30, 60], [30, 60], True))


@pytest.mark.rules("FUN-38")
def test_a_custom_function_that_writes_its_argument_keeps_its_backward(way):
    """PyTorch loses it and returns another object."""

    class Seven(way.lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return 7 * g

    start = way.leaf([1.0, 2.0])
    x = start.mul(1)
    got = way.compiled(lambda x: Seven.apply(x))(x)
    got.sum().backward()
    way.shows((got is x, start.grad.tolist()), (True, [7, 7]), pytorch=(False, [1, 1]))


@pytest.mark.rules("FUN-10")
def test_parts_that_are_read_after_a_write_cost_one_op_each():
    """PyTorch takes all parts anew for each that is read."""

    def read_all(x):
        parts = x.unbind()
        x.add_(1)
        return [part + 1 for part in parts]

    def ops(count):
        compiled = al.compile(read_all)
        compiled(al.ones(count, 2))
        return len(compiled.forward_graph.calls)

    assert [ops(count) - 2 * count for count in (4, 8, 16)] == [ops(2) - 4] * 3


@pytest.mark.torch
def test_parts_that_are_read_after_a_write_cost_pytorch_all_parts_each(torch):
    from torch._functorch.aot_autograd import aot_function, make_boxed_func

    counts = []

    def counting(graph, inputs):
        counts.append(sum("unbind" in node.name for node in graph.graph.nodes))
        return make_boxed_func(graph.forward)

    def read_all(x):
        parts = x.unbind()
        x.add_(1)
        return [part + 1 for part in parts]

    for count in (4, 8, 16):
        aot_function(read_all, counting)(torch.ones(count, 2))
    assert counts == [4, 8, 16]
