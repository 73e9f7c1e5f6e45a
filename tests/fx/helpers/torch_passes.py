"""Passes as one writes them for torch.fx: source texts, in which the import alone is changed.

Each text defines `run(OPS, lib, inputs)`, which returns (names of the ops that are left, the
result of a call, anything else that is compared). `OPS` are the functions of ops, `lib` is the
library; `example(name)` gives a function or Module to trace.
"""

HEAD = "import torch.fx as fx\n"

COMMON_SUBEXPRESSIONS = """
def function(x: "f32[3, 4]", y: "f32[3, 4]"):
    a = OPS.mul(OPS.sin(x), y)
    b = OPS.mul(OPS.sin(x), y)
    return OPS.add(a, OPS.exp(b)), OPS.exp(b)

def eliminate(graph):
    new_graph = fx.Graph()
    env, seen = {}, {}
    for node in graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            env[node] = new_graph.node_copy(node, lambda n: env[n])
            continue
        args = fx.map_arg(node.args, lambda n: env[n])
        kwargs = fx.map_arg(node.kwargs, lambda n: env[n])
        token = (node.target, args, tuple(kwargs.items()))
        if token not in seen:
            seen[token] = new_graph.node_copy(node, lambda n: env[n])
        env[node] = seen[token]
    new_graph.lint()
    return new_graph

def run(inputs):
    gm = fx.symbolic_trace(function)
    gm = fx.GraphModule(gm, eliminate(gm.graph))
    return gm, gm(*inputs), len(gm.graph.nodes)
"""

DECOMPOSITION = """
def function(x: "f32[3, 4]", y: "f32[3, 4]"):
    return OPS.add(OPS.relu(OPS.sub(x, y)), y)

def decompose_relu(x):
    return OPS.mul(OPS.gt(x, 0), x)

RULES = {OPS.relu: decompose_relu}

def decompose(model):
    graph = model.graph
    new_graph = fx.Graph()
    env = {}
    tracer = fx.proxy.GraphAppendingTracer(new_graph)
    for node in graph.nodes:
        if node.op == "call_function" and node.target in RULES:
            proxy_args = [
                fx.Proxy(env[x.name], tracer) if isinstance(x, fx.Node) else x for x in node.args
            ]
            output_proxy = RULES[node.target](*proxy_args)
            env[node.name] = output_proxy.node
        else:
            env[node.name] = new_graph.node_copy(node, lambda x: env[x.name])
    return fx.GraphModule(model, new_graph)

def run(inputs):
    gm = decompose(fx.symbolic_trace(function))
    return gm, gm(*inputs), "relu" in gm.code
"""

FLOPS = """
def function(x: "f32[3, 4]", y: "f32[3, 4]"):
    return OPS.matmul(OPS.mul(x, y), OPS.transpose(y, 0, 1))

class FlopCounter(fx.Interpreter):
    def __init__(self, module):
        super().__init__(module)
        self.flops = {}

    def run_node(self, n):
        result = super().run_node(n)
        if n.op == "call_function":
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            count = result.shape.numel() if hasattr(result.shape, "numel") else self.size(result)
            if n.target is OPS.matmul:
                count *= 2 * args[0].shape[-1]
            elif n.target is OPS.transpose:
                count = 0
            self.flops[n.name] = count
        return result

    def size(self, result):
        total = 1
        for each in result.shape:
            total *= each
        return total

def run(inputs):
    gm = fx.symbolic_trace(function)
    counter = FlopCounter(gm)
    result = counter.run(*inputs)
    return gm, result, counter.flops
"""

CONSTANT_FOLDING = """
class Scaled(lib.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = lib.nn.Parameter(weight, requires_grad=False)

    def forward(self, x: "f32[3, 4]", y: "f32[3, 4]"):
        w = OPS.exp(OPS.mul(self.weight, 2.0))
        return OPS.add(OPS.mul(x, w), y)

def fold(gm):
    constant = {}
    for node in list(gm.graph.nodes):
        if node.op == "get_attr":
            constant[node] = getattr(gm, node.target)
        elif node.op == "call_function":
            inputs = node.all_input_nodes
            if inputs and all(each in constant for each in inputs):
                args = fx.map_arg(node.args, lambda n: constant[n])
                kwargs = fx.map_arg(node.kwargs, lambda n: constant[n])
                constant[node] = node.target(*args, **kwargs)
    count = 0
    for node in list(constant):
        if node.op == "get_attr" or all(user in constant for user in node.users):
            continue
        name = f"_folded{count}"
        count += 1
        setattr(gm, name, constant[node])
        with gm.graph.inserting_before(node):
            folded = gm.graph.get_attr(name)
        node.replace_all_uses_with(folded)
    gm.graph.eliminate_dead_code()
    gm.graph.lint()
    gm.recompile()
    return gm

def run(inputs):
    gm = fold(fx.symbolic_trace(Scaled(inputs[0])))
    return gm, gm(*inputs), [n.target for n in gm.graph.nodes if n.op == "get_attr"]
"""

FUSION = """
from torch.fx.subgraph_rewriter import replace_pattern

def function(x: "f32[3, 4]", y: "f32[3, 4]"):
    a = OPS.mul(x, OPS.sigmoid(x))
    b = OPS.add(a, y)
    return OPS.mul(b, OPS.sigmoid(b)), OPS.mul(b, OPS.sigmoid(a))

def pattern(a):
    return OPS.mul(a, OPS.sigmoid(a))

def replacement(a):
    return OPS.silu(a)

def run(inputs):
    gm = fx.symbolic_trace(function)
    matches = replace_pattern(gm, pattern, replacement)
    return gm, gm(*inputs), len(matches)
"""

SPLITTING = """
from torch.fx.passes.split_module import split_module

def function(x: "f32[3, 4]", y: "f32[3, 4]"):
    a = OPS.sin(OPS.add(x, y))
    b = OPS.exp(OPS.mul(a, y))
    return OPS.sub(a, b)

def run(inputs):
    gm = fx.symbolic_trace(function)
    counter = [0]

    def part(node):
        counter[0] += 1
        return (counter[0] - 1) // 2

    split = split_module(gm, gm, part)
    names = [name for name, _ in split.named_children()]
    sizes = [len(getattr(split, name).graph.nodes) for name in names]
    return gm, split(*inputs), (names, sizes)
"""

SWAPPING = """
def function(x: "f32[3, 4]", y: "f32[3, 4]"):
    return OPS.add(OPS.add(x, y), 2.0)

def run(inputs):
    gm = fx.symbolic_trace(function)
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target == OPS.add:
            node.target = OPS.mul
            with gm.graph.inserting_after(node):
                after = gm.graph.call_function(OPS.neg, args=(node,))
            node.replace_all_uses_with(after, delete_user_cb=lambda user: user is not after)
    gm.graph.lint()
    gm.recompile()
    walked, node = [], next(iter(gm.graph.nodes))
    while node.op != "root":
        walked.append(node.op)
        node = node.next
    return gm, gm(*inputs), walked
"""

TRANSFORMER = """
def function(x: "f32[3, 4]", y: "f32[3, 4]"):
    return OPS.sub(OPS.sigmoid(x), OPS.neg(y))

class Swap(fx.Transformer):
    def call_function(self, target, args, kwargs):
        if target is OPS.sigmoid:
            return OPS.neg(*args, **kwargs)
        return super().call_function(target, args, kwargs)

def run(inputs):
    gm = Swap(fx.symbolic_trace(function)).transform()
    return gm, gm(*inputs), [n.op for n in reversed(gm.graph.nodes)]
"""

MANAGED = """
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.fx.passes.infra.pass_manager import PassManager, this_before_that_pass_constraint

def function(x: "f32[3, 4]", y: "f32[3, 4]"):
    return OPS.add(OPS.mul(x, 1.0), OPS.mul(y, 1.0))

class DropOnes(PassBase):
    def call(self, gm):
        modified = False
        for node in gm.graph.find_nodes(op="call_function", target=OPS.mul):
            if node.args[1] == 1.0:
                node.replace_all_uses_with(node.args[0])
                modified = True
        return PassResult(gm, modified)

class Clean(PassBase):
    def call(self, gm):
        return PassResult(gm, gm.graph.eliminate_dead_code())

def run(inputs):
    drop, clean = DropOnes(), Clean()
    manager = PassManager(
        passes=[clean, drop], constraints=[this_before_that_pass_constraint(drop, clean)], steps=3
    )
    result = manager(fx.symbolic_trace(function))
    gm = result.graph_module
    return gm, gm(*inputs), len(gm.graph.nodes)
"""

PASSES = {
    "common subexpressions": COMMON_SUBEXPRESSIONS,
    "decomposition": DECOMPOSITION,
    "flops": FLOPS,
    "constant folding": CONSTANT_FOLDING,
    "fusion": FUSION,
    "splitting": SPLITTING,
    "swapping": SWAPPING,
    "transformer": TRANSFORMER,
    "managed": MANAGED,
}
