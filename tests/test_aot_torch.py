"""The faces against PyTorch's: which compiler is called when, and which writes stay in a graph."""

import pytest

import aotlite as al
from aotlite import nn
from aotlite.compilers import make_boxed_func, nop


def mul_view(al, x):
    x.view(-1).mul_(2.0)
    return x.sum()


def under_no_grad(al, x):
    with al.no_grad():
        x.mul_(2.0)
    return x.detach().sum()


def transposed(al, x):
    x.t_()
    return x.sum()


def written_and_transposed(al, x):
    x.mul_(2.0)
    x.t_()
    return x.sum()


WRITES = {
    "plain": (lambda al, x: x.mul_(2.0).sum(), False),
    "through a view": (mul_view, False),
    "twice": (lambda al, x: x.mul_(2.0).add_(1.0).sum(), False),
    "undone": (lambda al, x: x.mul_(2.0).div_(2.0).sum(), False),
    "a part": (lambda al, x: x[0].fill_(3.0).sum(), False),
    "under no_grad": (under_no_grad, True),
    "geometry": (transposed, False),
    "bytes and geometry": (written_and_transposed, False),
    "nothing": (lambda al, x: x.sum(), False),
    "returned": (lambda al, x: x.mul_(2.0), False),
}


@pytest.mark.torch
@pytest.mark.parametrize("kind", WRITES)
def test_the_writes_that_stay_in_the_graph_are_pytorchs(torch, kind):
    """FUN-21, FUN-22: so many `copy_`, and the same bytes afterwards."""
    from torch._functorch.aot_autograd import aot_function

    f, requires_grad = WRITES[kind]
    copies = []

    def theirs(graph, inputs):
        copies.append([node.target.__name__ for node in graph.graph.nodes if node.op[:4] == "call"])
        return make_boxed_func(graph.forward)

    def ours(graph, inputs):
        copies.append([node.target.name for node in graph.calls])
        return nop(graph, inputs)

    x = torch.ones(2, 3, requires_grad=requires_grad)
    y = al.ones(2, 3, requires_grad=requires_grad)
    keep = {"keep_inference_input_mutations": True}
    its = aot_function(lambda x: f(torch, x), theirs, **keep)(x)
    mine = al.aot_function(lambda y: f(al, y), ours, **keep)(y)
    assert its.tolist() == mine.tolist()
    assert (x.tolist(), tuple(x.stride())) == (y.tolist(), y.stride())
    its, mine = [sum(name.startswith("copy_") for name in names) for names in copies]
    assert its == mine


@pytest.mark.torch
@pytest.mark.parametrize("own", [{}, {"bw_compiler"}, {"bw_compiler", "inference_compiler"}])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_compilers_are_called_when_pytorchs_are(torch, own, requires_grad):
    from torch._functorch.aot_autograd import aot_function

    def events(aot, x, boxed):
        seen = []

        def compiler(name):
            def compile_graph(graph, inputs):
                seen.append((name, len(inputs)))
                return boxed(graph, inputs)

            return compile_graph

        compiled = aot(
            lambda x: (x * x).sum(), compiler("fw"), **{name: compiler(name) for name in own}
        )
        for _ in range(2):
            value = compiled(x)
            seen.append("called")
            if requires_grad:
                value.backward()
                seen.append("differentiated")
        return seen

    theirs = events(
        aot_function,
        torch.ones(2, requires_grad=requires_grad),
        lambda graph, inputs: make_boxed_func(graph.forward),
    )
    mine = events(al.aot_function, al.ones(2, requires_grad=requires_grad), nop)
    assert theirs == mine


@pytest.mark.torch
def test_modules_have_pytorchs_names(torch):
    """aot_module wraps the module; the simplified form keeps its methods."""
    from torch._functorch.aot_autograd import aot_module, aot_module_simplified

    def theirs(graph, inputs):
        return make_boxed_func(graph.forward)

    class Tuple(torch.nn.Linear):
        def forward(self, x):
            return (super().forward(x),)

    its, mine = torch.nn.Linear(3, 2), nn.Linear(3, 2)
    assert list(aot_module(its, theirs).state_dict()) == list(al.aot_module(mine, nop).state_dict())
    its_form = aot_module_simplified(Tuple(3, 2), [torch.ones(1, 3)], theirs)
    form = al.aot_module_simplified(mine, [al.ones(1, 3)], nop)
    for name in ("named_parameters", "named_buffers"):
        names = [name for name, _ in getattr(its_form, name)()]
        assert names == [name for name, _ in getattr(form, name)()]
    assert callable(its_form.zero_grad)
    assert callable(form.zero_grad)
