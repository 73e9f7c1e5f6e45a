"""`from_fx`: a `torch.fx.GraphModule` as a graph.

The module is run on fake tensors, node by node, and each call becomes ops: by the table, by a form
of its own, by the composite of the same name, or by PyTorch's decomposition. The metas of the ops'
rules are compared with the fake tensors, and with `meta["val"]` where a node has it.
Spec: `specs/torch_fx.md`. Rules: XFX-7 to XFX-12.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from inspect import signature
from typing import Any

from aotlite.interchange.torch_fx.arguments import (
    ModuleValue,
    as_tuple,
    compare,
    holds_tensors,
    input_meta,
    is_tensor,
    itself,
    leaves_of,
    mapped,
    node_of,
    ours_of,
    theirs_of,
)
from aotlite.interchange.torch_fx.checks import check_nodes
from aotlite.interchange.torch_fx.forms import CHECKS, KEEPS_UNWRITTEN, READERS, Unwritten
from aotlite.interchange.torch_fx.matcher import arguments_of, defaults_of, is_same, the_table
from aotlite.interchange.torch_fx.values import (
    array_from,
    fake_of,
    from_torch,
    is_same_layout,
    meta_of,
    real_tensors,
    the_torch,
)
from aotlite.interchange.torch_fx.writer import KEY
from aotlite.ir.errors import AotliteError, ArgumentError, UnsupportedError, noted
from aotlite.ir.graph import Graph, Phase
from aotlite.ir.graph.builder import Builder, Proxy, Results
from aotlite.ir.graph.graph import name_from
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, GeometryOp, InplaceOp, PureOp
from aotlite.ir.op.composite import COMPOSITES
from aotlite.ir.op.schema import REQUIRED
from aotlite.ir.ops.structure import GETITEM

REDUCTIONS = ("none", "mean", "sum")
"""The words for aten's numbers."""


def from_fx(module: Any, *examples: Any) -> Graph:
    """A `torch.fx.GraphModule` as a graph: of `symbolic_trace`, `make_fx`, `torch.export` (its
    `graph_module`) or `to_fx`.

    Without `examples`, tensors that are only looked at, each input needs `meta["val"]`. Parameters,
    buffers and constants of the module become constants of the graph.
    Raises UnsupportedError that names all nodes which cannot cross, ArgumentError for a node whose
    `meta["val"]` is not what the call gives, and MissingExtraError where PyTorch is not installed.
    """
    torch = the_torch()
    if not isinstance(module, torch.fx.GraphModule):
        raise noted(
            ArgumentError(
                f"from_fx: the module is a {type(module).__name__}, expected a torch.fx.GraphModule"
            ),
            "torch.fx.symbolic_trace, make_fx(f)(*args) and the graph_module of torch.export give "
            "one.",
        )
    check_nodes(module, is_known)
    reader = ModuleReader(str(module._get_name()))
    with torch.no_grad(), reader.mode:
        return reader.graph_of(module, examples)


def is_known(overload: Any) -> bool:
    """Whether an overload of aten can become ops."""
    name = short(overload)
    if name in READERS or name in CHECKS or overload in the_table().of_overload:
        return True
    base = name.partition(".")[0]
    return base in COMPOSITES or base in ("sym_storage_offset", "sym_size") or _decomposes(overload)


def _decomposes(overload: Any) -> bool:
    from torch._decomp import decomposition_table

    return overload in decomposition_table or overload._can_decompose()


def short(overload: Any) -> str:
    """The name of an overload without its namespace, as in the rows of the table."""
    return str(overload).partition(".")[2]


class ModuleReader:
    """A graph under construction, and the fake values of the module."""

    def __init__(self, name: str) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.torch = the_torch()
        self.builder = Builder(name_from(name))
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.made: Any = None
        """The fake result of the call that is being read."""
        self.given: dict[str, Any] = {}
        """The fake arguments of that call."""
        self.env: dict[Any, ModuleValue] = {}
        self.values: list[ModuleValue] = []
        """All values, by which a change of geometry finds the names of its tensor."""
        self.node: Any = None
        """The node of the module that is being read."""
        self.inserted: dict[Any, Any] = {}
        """Copies that give a value PyTorch's strides -> the value."""

    # --- the module
    def graph_of(self, module: Any, examples: Sequence[Any]) -> Graph:
        """The graph of the whole module."""
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        if examples and len(examples) != len(inputs):
            raise ArgumentError(
                f"from_fx: there are {len(examples)} examples, expected one for each of "
                f"{len(inputs)} inputs"
            )
        metas = [input_meta(n, examples[k] if examples else None) for k, n in enumerate(inputs)]
        for node, (meta, offset) in zip(inputs, metas, strict=True):
            role = node.meta.get(KEY, {}).get("role")
            self.env[node] = ModuleValue(
                self.builder.placeholder(meta, role), fake_of(meta, offset)
            )
        self.values += self.env.values()
        found = leaves_of(self._run(module, self.env))
        results = [each for value in found for each in self._results(value)]
        self._drop_copies(results)
        graph = self.builder.finish(results, self._roles(module))
        verify(graph)
        return graph

    def _results(self, value: Any) -> list[Any]:
        """The results of the graph for one of the module's: several for a size, or a tuple."""
        if not isinstance(value, ModuleValue):
            return [from_torch(value)]
        ours = ours_of(value)
        return [self._whole(each) for each in (ours if type(ours) is tuple else (ours,))]

    def _drop_copies(self, results: list[Any]) -> None:
        """Removes inserted copies that nothing reads."""
        used = {each.node for each in results if isinstance(each, Proxy)}
        used.update(*[node.inputs() for node in self.builder.nodes])
        dead = {node for node in self.inserted if node not in used}
        self.builder.nodes = [node for node in self.builder.nodes if node not in dead]

    def _roles(self, module: Any) -> Any:
        (node,) = [each for each in module.graph.nodes if each.op == "output"]
        return node.meta.get(KEY, {}).get("roles")

    def _run(self, module: Any, env: dict[Any, ModuleValue], phase: Phase | None = None) -> Any:
        """The values that a module returns, for its inputs in `env`."""
        for node in module.graph.nodes:
            self.builder.phase = phase or _phase(node)
            try:
                if node.op == "get_attr":
                    env[node] = self._constant(module, node)
                elif node.op == "output":
                    return mapped(node.args[0], env, itself)
                elif node.op != "placeholder":
                    env[node] = self._called(node, env)
                    if phase is None:
                        compare(node, env[node])
            except AotliteError as error:
                error.add_note(f"while reading: {node.format_node()}")
                raise
            except Exception as error:
                raise noted(
                    UnsupportedError(
                        f"from_fx: {node.name} is a call of {node.target}, which PyTorch refuses "
                        f"on tensors without data ({str(error).splitlines()[0]}), expected a call "
                        "whose result has a meta"
                    ),
                    f"while reading: {node.format_node()}",
                    "Instead: give it arguments that it takes, and keep out what asks for values "
                    "(item, nonzero, a condition on a tensor). (XFX-13)",
                ) from error
        raise ArgumentError("from_fx: the module has no output node, expected one")

    def _constant(self, module: Any, node: Any) -> ModuleValue:
        tensor = operator.attrgetter(node.target)(module)
        if not isinstance(tensor, self.torch.Tensor):
            return ModuleValue(from_torch(tensor), tensor)
        from torch._subclasses.fake_tensor import FakeTensor

        if isinstance(tensor, FakeTensor):
            raise UnsupportedError(
                f"from_fx: constant {node.target} is a fake tensor, expected one with values"
            )
        meta = meta_of(tensor)
        name = node.meta.get(KEY, {}).get("name", str(node.target).replace(".", "_"))
        with real_tensors():
            array = array_from(tensor)
        return ModuleValue(self.builder.constant(name, array, meta), fake_of(meta))

    # --- calls
    def _called(self, node: Any, env: dict[Any, ModuleValue]) -> ModuleValue:
        self.node = node
        args, kwargs = mapped((node.args, node.kwargs), env, itself)
        target = node.target
        if node.op == "call_method":
            target = _method(node.target)
        value = self.call(target, args, kwargs)
        self.values.append(value)
        return value

    def call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ModuleValue:
        """The value of a call of a function of PyTorch's, on `ModuleValue`s."""
        if target is operator.getitem and isinstance(args[0].ours, (tuple, Results)):
            return self._taken(args[0], args[1])
        if target is getattr and isinstance(args[0], ModuleValue) and args[1] in args[0].fields:
            return self._taken(args[0], args[0].fields.index(args[1]))
        if isinstance(target, self.torch._ops.OpOverload):
            if short(target) in CHECKS:
                return ModuleValue(None, None)
            return self.overload(target, args, kwargs)
        if any(map(is_tensor, leaves_of((args, kwargs)))):
            return self.traced(target, args, kwargs)
        fakes = mapped((args, kwargs), {}, theirs_of)
        found = target(*fakes[0], **fakes[1])
        if holds_tensors(found):
            return self.traced(target, args, kwargs)
        return ModuleValue(from_torch(found), found)

    def _taken(self, value: ModuleValue, index: Any) -> ModuleValue:
        index = index.ours if isinstance(index, ModuleValue) else index
        found, made = value.ours[index], value.fake[index]
        if isinstance(found, Proxy):
            found = self._fitted("getitem", found, made)
        return ModuleValue(found, made)

    def overload(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ModuleValue:
        """The value of a call of an overload of aten."""
        fakes = mapped((args, kwargs), {}, theirs_of)
        self.given = arguments_of(target, *fakes)
        made = self.made = target(*fakes[0], **fakes[1])
        if not holds_tensors(made):
            return ModuleValue(from_torch(made), made)
        ours = mapped((args, kwargs), {}, ours_of)
        given = arguments_of(target, *ours)
        given = {name: from_torch(value) for name, value in given.items()}
        if short(target) not in KEEPS_UNWRITTEN:
            given = {name: self._whole(value) for name, value in given.items()}
        found = self._by_form(target, given)
        if found is NotImplemented:
            value = self.traced(target, args, kwargs, decomposing=target)
            return ModuleValue(self._fitted(target, value.ours, made), made)
        value = ModuleValue(self._fitted(target, found, made), made)
        if isinstance(found, Proxy) and found.node.op == "call":
            self._check_write(args[0], value)
        return value

    def _by_form(self, target: Any, given: dict[str, Any]) -> Any:
        """The ops of a call in the first way that there is; else NotImplemented."""
        read = READERS.get(short(target))
        found = NotImplemented if read is None else read(self, given)
        if found is not NotImplemented:
            return found
        given = {name: self._whole(value) for name, value in given.items()}
        row = the_table().read(target, given)
        if row is not None:
            op, named = row
            return self.builder.apply(op, tuple([node_of(x) for x in op.bind((), named)]))
        return self._by_composite(target, given)

    def _by_composite(self, target: Any, given: dict[str, Any]) -> Any:
        """The composite of the same name, if it has all that is given."""
        made = COMPOSITES.get(short(target).partition(".")[0])
        if made is None or made.is_property:
            return NotImplemented
        defaults, start = defaults_of(target), len(self.builder.nodes)
        named = {
            name: value
            for name, value in given.items()
            if defaults[name] is REQUIRED or not is_same(value, defaults[name])
        }
        if made.schema is None:
            parameters = set(signature(made.function).parameters)
        else:
            parameters = {each.name for each in made.schema.parameters}
        if "self" in named and "self" not in parameters:
            named["input"] = named.pop("self")
        if not named.keys() <= parameters:
            return NotImplemented
        if "reduction" in defaults:
            named["reduction"] = REDUCTIONS[given["reduction"]]
        try:
            return made.call(**named)
        except (AotliteError, TypeError):
            del self.builder.nodes[start:]
            return NotImplemented

    def traced(
        self, target: Any, args: Any, kwargs: Any, *, decomposing: Any = None
    ) -> ModuleValue:
        """The value of a call by the ops of aten that it runs, as `make_fx` records them."""
        from torch.fx.experimental.proxy_tensor import make_fx

        leaves = [each for each in leaves_of((args, kwargs)) if is_tensor(each)]
        fields: list[str] = []
        copies = [fake_of(meta_of(each.fake), each.fake.storage_offset()) for each in leaves]

        def function(*tensors: Any) -> Any:
            names = dict(zip(map(id, leaves), tensors, strict=True))
            given = mapped((args, kwargs), {}, lambda value: names.get(id(value), value.fake))
            found = target(*given[0], **given[1])
            fields.extend(getattr(type(found), "__match_args__", ()))
            return found

        table = {} if decomposing is None else _decompositions()
        inner = make_fx(function, decomposition_table=table)(*copies)
        if decomposing is not None and any(n.target is decomposing for n in inner.graph.nodes):
            raise UnsupportedError(
                f"from_fx: {target} has no counterpart for these arguments, and PyTorch no "
                "decomposition of it, expected an op that aotlite has"
            )
        check_nodes(inner, is_known)
        inputs = [node for node in inner.graph.nodes if node.op == "placeholder"]
        outer = self.node
        result = self._run(inner, dict(zip(inputs, leaves, strict=True)), self.builder.phase)
        self.node = outer
        if isinstance(result, ModuleValue):
            return result
        ours = as_tuple(mapped(result, {}, lambda value: value.ours))
        return ModuleValue(ours, mapped(result, {}, theirs_of), tuple(fields))

    # --- what the forms ask
    def emit(self, op: str, *args: Any, **kwargs: Any) -> Any:
        """The result of an op."""
        found = OPS[op]
        return self.builder.apply(found, tuple([node_of(x) for x in found.bind(args, kwargs)]))

    def offset_of(self, name: str) -> int:
        """PyTorch's storage offset of an argument of the call that is being read."""
        return int(self.given[name].storage_offset())

    def meta_made(self) -> TensorMeta:
        """The meta of PyTorch's result."""
        return meta_of(self.made)

    # --- what becomes of a result
    def _whole(self, value: Any) -> Any:
        """A value as an argument: what is unwritten becomes zeros."""
        if type(value) is tuple:
            return tuple([self._whole(each) for each in value])
        if not isinstance(value, Unwritten):
            return value
        meta = value.meta
        made = self.emit("full", meta.shape, 0.0, dtype=meta.dtype, device=meta.device)
        return made if made.meta is meta else self.emit("restride", made, meta.stride)

    def _fitted(self, target: Any, found: Any, made: Any) -> Any:
        """The result with PyTorch's strides. Raises ArgumentError for another shape or dtype."""
        if isinstance(found, tuple):
            return tuple([self._part(target, *pair) for pair in zip(found, made, strict=True)])
        if isinstance(found, (Unwritten, Results)):
            return found
        wanted = meta_of(made)
        if found.meta is wanted:
            return found
        if (found.meta.shape, found.meta.dtype) != (wanted.shape, wanted.dtype):
            raise ArgumentError(
                f"from_fx: {target} gives {wanted} in PyTorch, expected {found.meta}"
            )
        if not is_fresh(found.node) and is_same_layout(found.meta, wanted):
            return self.emit("as_strided", found, wanted.shape, wanted.stride, 0)
        if not is_fresh(storage_root(found.node)):
            raise ArgumentError(
                f"from_fx: {target} gives {wanted} in PyTorch, expected {found.meta}, a view"
            )
        copy = self.emit("restride", found, wanted.stride)
        self.inserted[copy.node] = found
        return copy

    def _part(self, target: Any, found: Any, made: Any) -> Any:
        """One of several results; an error for one that PyTorch's decomposition has otherwise,
        which is raised where it is read."""
        if found is None:
            return None
        try:
            return self._fitted(target, found, made)
        except ArgumentError as error:
            return error

    def copied(self, value: Any, stride: tuple[int, ...]) -> Any:
        """A copy with these strides: of a copy that only gave it PyTorch's, the value itself."""
        source = self.inserted.get(value.node)
        around = {self.node, *self.node.all_input_nodes}
        if source is None or any(not around.issuperset(n.users) for n in self.node.all_input_nodes):
            return self.emit("restride", value, stride)
        return source if source.meta.stride == stride else self.emit("restride", source, stride)

    def _check_write(self, operand: Any, value: ModuleValue) -> None:
        """Renames a tensor whose geometry changed. Raises UnsupportedError for a write that the
        graph cannot have."""
        op, root = value.ours.node.target, storage_root(value.ours.node)
        if isinstance(op, InplaceOp) and root.op == "get_attr":
            raise UnsupportedError(
                f"from_fx: {op.name} writes the constant {root.target.name}, expected one that is "
                "only read: make it an input"
            )
        if isinstance(op, GeometryOp):
            if operand.ours.node.op == "placeholder":
                raise UnsupportedError(
                    f"from_fx: {op.name} changes the geometry of an input, expected a new tensor"
                )
            for each in self.values:
                if each.fake is operand.fake:
                    each.ours = value.ours


def is_fresh(node: Any) -> bool:
    """Whether a node's value is new memory that the node made."""
    if node.target is GETITEM:
        return isinstance(node.args[0].target, PureOp)
    return node.op == "call" and isinstance(node.target, PureOp)


def _method(name: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: getattr(self, name)(*args, **kwargs)


def _phase(node: Any) -> Phase:
    return Phase.BACKWARD if node.meta.get("partitioner_tag") == "is_backward" else Phase.FORWARD


@cache
def _decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions of the overloads that the table and the forms do not have."""
    from torch._decomp import decomposition_table

    rows = the_table().of_overload
    return {
        overload: function
        for overload, function in decomposition_table.items()
        if overload not in rows
        and short(overload) not in READERS
        and short(overload).partition(".")[0] not in COMPOSITES
    }
