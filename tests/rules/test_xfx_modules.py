"""XFX-2, XFX-7 to XFX-12: modules of torch.fx as graphs, random graphs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import aotlite as al
from aotlite.interchange import from_fx, to_fx
from aotlite.interchange.torch_fx.values import array_from
from aotlite.ir.errors import ArgumentError, UnsupportedError
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Primal
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.run.interpreter import run_graph
from tests.interchange import torch_fx

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def traced(function, *args):
    """The module of `make_fx`."""
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function, tracing_mode="fake")(*args)


def check(torch, module, args, examples=()):
    """Asserts that a module and its graph give the same."""
    graph = from_fx(module, *examples)
    expected = torch.fx.Interpreter(module).run(*[each.clone() for each in args])
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    got = run_graph(graph, *[array_from(each.clone()) for each in args])
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_allclose(array_from(one), np.asarray(other), 1e-5, 1e-5)
        steps = tuple(step * other.itemsize for step in one.stride())
        assert other.strides == steps or not other.size
    return graph


def written(x):
    y = x * 2
    y[0].add_(1)
    y[:, 1] = 3
    y.t_()
    return y + 1


NAMES = """operators scaled activations softmax normalized losses views sizes indices
parts places chosen dtypes made statistics written""".split()


def functions(torch):
    """Functions of a tensor of shape (3, 4), by name."""
    F = torch.nn.functional
    return {
        "operators": lambda x: (x + 1) * 2 - x / 3 - (-x) + x**2 + 2**x + abs(x),
        "scaled": lambda x: torch.add(x, x, alpha=2) + torch.addcmul(x, x, x, value=2),
        "activations": lambda x: F.relu(x) + F.gelu(x) + F.silu(x) + F.elu(x) + F.softplus(x),
        "softmax": lambda x: F.softmax(x, -1) + F.log_softmax(x, 0),
        "normalized": lambda x: F.layer_norm(x, (4,)) + F.group_norm(x[None], 3)[0],
        "losses": lambda x: F.mse_loss(x, x + 1) + F.cross_entropy(x, torch.tensor([1, 0, 3])),
        "views": lambda x: x.view(-1).reshape(2, 6).t().contiguous().permute(1, 0).unsqueeze(0),
        "sizes": lambda x: x.view(x.size(0) * x.shape[1]),
        "indices": lambda x: x[0] + x[:, 1:3].sum() + x[..., None].sum() + x[[0, 2]].sum(),
        "parts": lambda x: torch.cat([x, x * 2], 1).chunk(2, 1)[0] + torch.stack([x, x]).sum(0),
        "places": lambda x: (
            x.max(1).values + torch.sort(x)[0][:, 0] + torch.topk(x, 2).values[:, 0]
        ),
        "chosen": lambda x: torch.where(x > 0, x, torch.zeros_like(x)) + x.masked_fill(x > 0, 2.0),
        "dtypes": lambda x: x.double().sum() + x.int().sum() + x.to(torch.float16).sum(),
        "made": lambda x: (
            x.new_zeros(4) + torch.arange(4) + torch.full((3, 4), 2.0) + torch.eye(3, 4)
        ),
        "statistics": lambda x: torch.var_mean(x, 1)[0] + x.std() + x.median() + x.norm(),
        "written": written,
    }


@pytest.mark.rules("XFX-7", "XFX-9", "XFX-10", "XFX-12")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", NAMES)
def test_a_traced_function_is_a_graph_that_gives_the_same(torch, name):
    """With metas that `make_fx` recorded, and of `symbolic_trace`, with examples."""
    x, function = torch.linspace(-1, 2, 12).view(3, 4), functions(torch)[name]
    check(torch, traced(function, x), [x])
    if name != "written":  # PyTorch's symbolic proxies take no assignment
        check(torch, torch.fx.symbolic_trace(function), [x], [x])


@pytest.mark.rules("XFX-7", "XFX-9", "XFX-10")
def test_gradients_of_a_network_are_a_graph(torch):
    F = torch.nn.functional
    image, weight = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)

    def step(image, weight):
        image, weight = image.detach(), weight.detach().requires_grad_()
        loss = F.max_pool2d(F.conv2d(image, weight, padding=1), 2).tanh().square().mean()
        return loss.detach(), *torch.autograd.grad(loss, [weight])

    graph = check(torch, traced(step, image, weight), [image, weight])
    assert "conv2d_weight" in {node.target.name for node in graph.calls}


@pytest.mark.rules("XFX-7", "XFX-9")
def test_an_exported_program_is_a_graph(torch):
    class Net(torch.nn.Module):
        def forward(self, x):
            attention = torch.nn.functional.scaled_dot_product_attention
            return attention(x, x, x), x.sum(0)

    x = torch.randn(1, 2, 3, 4)
    check(torch, torch.export.export(Net(), (x,)).graph_module, [x])


@pytest.mark.rules("XFX-4", "XFX-5", "XFX-11")
def test_random_graphs_cross_and_run_equal(torch):
    """`python -m tests.interchange.torch_fx --graphs 200` takes more of them."""
    graphs = torch_fx.random_graphs(3)
    for _ in range(4):
        name, graph, arrays = next(graphs)
        assert graph is not None, name
        assert [] == list(torch_fx.differences(graph, arrays)), name


@pytest.mark.rules("XFX-1")
def test_inputs_have_the_names_and_roles_of_the_graph(torch):
    compiled = al.compile(lambda x: x.mul_(2.0).sum(), backend="reference")
    compiled(al.ones(3, 2).t())
    module = to_fx(compiled)
    first, *_, last = module.graph.nodes
    assert ("primals_0", (2, 3), (1, 2)) == (
        first.name,
        tuple(first.meta["val"].shape),
        first.meta["val"].stride(),
    )
    assert compiled.forward_graph.output_roles == last.meta["aotlite"]["roles"]
    back = from_fx(module)
    assert back.placeholders[0].role == Primal(0)
    assert back.output_roles == compiled.forward_graph.output_roles


@pytest.mark.rules("XFX-1")
def test_constants_are_buffers(torch):
    compiled = al.compile(lambda x: x * al.tensor([1.0, 2.0]), backend="reference")
    compiled(al.ones(2))
    module = to_fx(compiled)
    assert [[1.0, 2.0]] == [buffer.tolist() for buffer in module.buffers()]
    assert [3.0, 8.0] == module(torch.tensor([3.0, 4.0]))[0].tolist()


@pytest.mark.rules("XFX-1")
def test_an_input_may_begin_anywhere_in_its_memory(torch):
    build = Builder("window")
    x = build.placeholder(tensor_meta((2, 2)))
    module = to_fx(build.finish([x.as_strided((2,), (1,), 1)]))
    assert [4.0, 5.0] == module(torch.arange(9.0)[3:7].view(2, 2))[0].tolist()


# ------------------------------------------------------------------------------------------ refused
@pytest.mark.rules("XFX-2")
def test_all_ops_that_pytorch_lacks_are_named_at_once(torch):
    build = Builder("noise")
    x = build.placeholder(tensor_meta((2,)))
    count = x._do("nonzero_count")
    noise = build.call(OPS["uniform"], (7, 8, 0, (2,), al.float32, None))
    with pytest.raises(UnsupportedError, match="2 calls that PyTorch has no op for") as raised:
        to_fx(build.finish([count, noise]))
    assert "nonzero_count" in str(raised.value) and "uniform draws by a seed" in str(raised.value)


SIZED = {
    "reshaped": lambda x, y: (x.t().reshape(-1) * 2).unsqueeze(0) + y.sum(),
    "halved": lambda x, y: x[: x.shape[0] // 2] + y.mean(),
    "padded": lambda x, y: al.nn.functional.pad(x, (1, 2)) * y[0],
    "made": lambda x, y: x.new_zeros(x.shape[0] * 2, y.shape[0]) + y + x.shape[1],
    "window": lambda x, y: x.t().contiguous().as_strided((x.shape[1],), (x.shape[0],)) * y[0],
    "expanded": lambda x, y: y.unsqueeze(0).expand(x.shape[0], -1).cumsum(0),
    "written": lambda x, y: x.mul_(2)[0].add_(y.sum()) * 1,
    "joined": lambda x, y: al.cat([x.reshape(-1), y]) / x.shape[0],
    "counted": lambda x, y: al.arange(x.shape[0]) * 2 + y.mean(),
    "longest": lambda x, y: al.zeros(max(x.shape[0], y.shape[0])) + x.sum() + y.sum(),
}


@pytest.mark.rules("XFX-6")
@pytest.mark.parametrize("name", SIZED)
def test_a_graph_with_symbols_is_a_module_for_all_sizes(torch, name):
    function = SIZED[name]
    compiled = al.compile(function, dynamic=True, backend="reference")
    compiled(al.ones(4, 6) * 1.5, al.ones(5))
    module = to_fx(compiled)
    for rows, columns, count in ((4, 6, 5), (3, 5, 9), (2, 8, 7)):
        arrays = np.random.rand(rows, columns), np.random.rand(count)
        expected = function(*[al.tensor(each) for each in arrays]).numpy()
        got = module(*[torch.tensor(each) for each in arrays])[-1]
        back = from_fx(module, *[torch.tensor(each) for each in arrays])
        again = run_graph(back, *[each.copy() for each in arrays])[-1]
        for found in (got.numpy(), again):
            np.testing.assert_allclose(expected, found, 1e-6)
    with pytest.raises(ArgumentError, match="no meta"):
        from_fx(module)


@pytest.mark.rules("XFX-6")
def test_sizes_that_a_graph_is_not_for_are_refused_before_anything_is_written(torch):
    compiled = al.compile(
        lambda x, y: x.mul_(max(x.shape[0], y.shape[0])),
        dynamic=True,
        backend="reference",
        keep_inference_input_mutations=True,
    )
    compiled(al.ones(4), al.ones(5))
    module, x, longer = to_fx(compiled), torch.ones(4), torch.ones(9)
    module(x, longer)
    assert torch.equal(9 * torch.ones(4), x)
    with pytest.raises(AssertionError, match="the graph is for sizes with "):
        module(longer, x)
    assert torch.equal(torch.ones(9), longer)
    half = al.compile(lambda x: x * (x.shape[0] / 3), dynamic=True, backend="reference")
    half(al.ones(4))
    with pytest.raises(UnsupportedError, match="which is computed from a size"):
        to_fx(half)


def mine(x):
    return x + 1


def layers(torch):
    """A module that calls modules, and a function of the user's."""
    root = torch.nn.Module()
    root.first, root.second = torch.nn.Linear(2, 2), torch.nn.ReLU()
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for name in ("first", "second"):
        x = graph.call_module(name, (x,))
    graph.output(graph.call_function(mine, (x,)))
    return torch.fx.GraphModule(root, graph)


@pytest.mark.rules("XFX-8")
def test_every_node_that_cannot_cross_is_named(torch):
    module = layers(torch)
    before = str(module.graph)
    with pytest.raises(UnsupportedError, match="3 nodes of .* cannot cross") as raised:
        from_fx(module, torch.ones(1, 2))
    text = str(raised.value)
    assert "first calls the module 'first', a Linear" in text
    assert "second calls the module 'second', a ReLU" in text
    assert "mine, which PyTorch does not define" in text
    assert any("make_fx(module)" in note for note in raised.value.__notes__)
    assert before == str(module.graph)


@pytest.mark.rules("XFX-8")
def test_an_overload_without_an_op_is_named(torch):
    module = traced(lambda x: torch.cdist(x, x).sum(), torch.ones(2, 3))
    with pytest.raises(UnsupportedError, match="aten._cdist_forward.default, for which there is"):
        from_fx(module)


@pytest.mark.rules("XFX-8")
def test_an_argument_out_is_refused(torch):
    module = torch.fx.symbolic_trace(lambda x, y: torch.add(x, x, out=y))
    with pytest.raises(UnsupportedError, match="an argument 'out', which is written"):
        from_fx(module, torch.ones(2), torch.ones(2))


@pytest.mark.rules("XFX-7")
def test_an_input_without_a_meta_is_refused(torch):
    module = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(ArgumentError, match=r"input x has no meta .* expected meta\['val'\]"):
        from_fx(module)
    with pytest.raises(ArgumentError, match="there are 2 examples, expected one for each of 1"):
        from_fx(module, torch.ones(1), torch.ones(1))


@pytest.mark.rules("XFX-7")
def test_what_is_no_module_is_refused(torch):
    with pytest.raises(ArgumentError, match=r"the module is a function, expected a torch\.fx"):
        from_fx(mine)


@pytest.mark.rules("XFX-10")
def test_a_wrong_meta_is_an_error_with_the_node(torch):
    module = traced(lambda x: x.exp(), torch.ones(2, 3))
    node = next(each for each in module.graph.nodes if each.op == "call_function")
    node.meta["val"] = node.meta["val"].t()
    with pytest.raises(ArgumentError, match=r"of exp is f32\[3, 2\]\[1, 3\], expected f32\[2, 3\]"):
        from_fx(module)


@pytest.mark.rules("XFX-12")
def test_a_constant_that_is_written_is_refused(torch):
    graph = torch.fx.Graph()
    calls = graph.get_attr("calls")
    graph.output(graph.call_method("add_", (calls, 1)))
    root = torch.nn.Module()
    root.register_buffer("calls", torch.zeros(()))
    with pytest.raises(UnsupportedError, match="add_ writes the constant calls"):
        from_fx(torch.fx.GraphModule(root, graph))


@pytest.mark.rules("XFX-12")
def test_a_change_of_an_inputs_geometry_is_refused(torch):
    with pytest.raises(UnsupportedError, match="t_ changes the geometry of an input"):
        from_fx(torch.fx.symbolic_trace(lambda x: x.t_() + 1), torch.ones(2, 3))


@pytest.mark.rules("XFX-3")
def test_a_read_only_array_is_copied_with_its_strides(torch):
    """Elements of one address stay one: seed 5014 of the random programs."""
    from aotlite.interchange.torch_fx.values import tensor_from

    windows = np.lib.stride_tricks.sliding_window_view(np.arange(4.0), 2)
    tensor = tensor_from(windows)
    assert (1, 1) == tensor.stride()
    assert windows.tolist() == tensor.tolist()
    tensor[0, 1] = 9.0
    assert [1.0, 9.0] == [windows[1, 0], tensor[1, 0].item()]


def module_of(torch, *targets):
    """A module whose nodes apply functions, or methods by name, to its input, one by one."""
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    for target in targets:
        make = graph.call_method if isinstance(target, str) else graph.call_function
        node = make(target, (node,))
    graph.output(node)
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.rules("XFX-13")
def test_calls_that_need_values_are_refused_with_the_node(torch):
    for targets in ((torch.nonzero,), ("sum", "item"), (torch.sin, "view")):
        module = module_of(torch, *targets)
        before = str(module.graph)
        with pytest.raises(UnsupportedError, match="which PyTorch refuses on") as caught:
            from_fx(module, torch.ones(2, 2))
        assert any("while reading: " in note for note in caught.value.__notes__)
        assert before == str(module.graph)


@pytest.mark.rules("XFX-13")
def test_nodes_of_no_order_and_of_other_graphs_are_named(torch):
    cyclic, foreign = module_of(torch, torch.sin, torch.cos), module_of(torch, torch.sin)
    _, sin, cos, _ = cyclic.graph.nodes
    sin.args = (cos,)
    with pytest.raises(ArgumentError, match="sin reads cos, which stands behind it"):
        from_fx(cyclic, torch.ones(2))
    list(foreign.graph.nodes)[1].args = (sin,)
    with pytest.raises(ArgumentError, match="which is erased, or of another graph"):
        from_fx(foreign, torch.ones(2))
    with pytest.raises(UnsupportedError, match="layout"):
        from_fx(module_of(torch, torch.sin), torch.eye(2).to_sparse())


@pytest.mark.rules("XFX-14")
def test_graphs_of_fx_cross_and_sizes_are_results(torch):
    traced_here = al.fx.symbolic_trace(lambda x: (x.t() * 2, {"k": x.sin()}), "f32[2, 3]")
    x = torch.arange(6.0).reshape(2, 3)
    for source in (traced_here, traced_here.graph):
        doubled, sine = to_fx(source)(x)
        assert torch.equal(x.t() * 2, doubled) and torch.allclose(x.sin(), sine)
    graph = from_fx(module_of(torch, "size"), x)
    assert (2, 3) == graph.outputs
