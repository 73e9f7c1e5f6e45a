"""`GraphModule`: a Module whose `forward` is the code of an `aotlite.fx.Graph`.

It runs eager ops, so that its results have history, views and writes as the graph says. Edits of
`graph` take effect with `recompile()`. Rules: FXG-9, FXG-14 to FXG-16. Spec: `specs/fx.md`.
"""

from __future__ import annotations

import copy
import linecache
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aotlite.api import compile as compile_function
from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.op_functions import FUNCTIONS
from aotlite.eager.tracked_objects import own_attributes
from aotlite.fx.core import module_files
from aotlite.fx.core.codegen import PythonCode
from aotlite.fx.core.input_checks import InputChecks
from aotlite.fx.core.values import tensor_of, value_at
from aotlite.fx.core.words import Args, Argument, Kwargs
from aotlite.fx.graph import FxGraph
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.graph import Graph as IrGraph
from aotlite.ir.meta import TensorMeta
from aotlite.nn.module import Module

__all__ = ["FolderModule", "GraphModule", "from_text", "function_of_code"]


class GraphModule(Module):
    """A Module made of a graph.

    `GraphModule(graph)` takes the constants of the graph itself; `GraphModule(root, graph)` takes
    parameters and constants from a Module, or from a dict of values by dotted name. A graph of
    `aotlite.ir` is copied. Raises GraphError for a graph that breaks an invariant.

    >>> from aotlite import fx, ones
    >>> module = fx.symbolic_trace(lambda x: x * 2.0, "f32[2]")
    >>> for node in module.graph.find_nodes(op="call_function"):
    ...     node.target = fx.ops.add
    >>> _ = module.recompile()
    >>> module(ones(2)).tolist()
    [3.0, 3.0]
    """

    _of_graph: tuple[str, ...] = ("_graph", "_code", "_run", "_checks", "_class_name")
    """Attributes that are made of the graph."""

    def __init__(self, root: Any, graph: Any = None, class_name: str = "GraphModule") -> None:
        if graph is None:
            root, graph = {}, root
        if not isinstance(root, (Module, Mapping)):
            raise ArgumentError(f"GraphModule: the root is {root!r}, expected a Module or a dict")
        if isinstance(graph, IrGraph):
            graph = FxGraph(graph)
        if not isinstance(graph, FxGraph):
            raise ArgumentError(f"GraphModule: the graph is {graph!r}, expected an fx.Graph")
        self._class_name = class_name
        for node in graph.find_nodes(op="get_attr"):
            self._take(root, graph, node.target, node.meta["val"])
        if isinstance(root, Module):
            self.training = root.training
        self.graph = graph

    def _take(self, root: Any, graph: FxGraph, name: str, meta: TensorMeta) -> None:
        """Sets the attribute that a constant is read from."""
        value = value_at(root, name) if isinstance(root, Module) else root.get(name)
        if value is None:
            value = graph.value_of(name)
        if not isinstance(value, Tensor):
            value = tensor_of(value, meta)
        owner: Module = self
        *path, last = name.split(".")
        for part in path:
            if not isinstance(own_attributes(owner).get(part), Module):
                setattr(owner, part, Module())
            owner = getattr(owner, part)
        if own_attributes(owner).get(last) is not value:
            setattr(owner, last, value)

    # --- the graph and its code
    @property
    def graph(self) -> FxGraph:
        """The graph, to be edited; `recompile()` makes edits take effect."""
        found: FxGraph = own_attributes(self)["_graph"]  # type: ignore[assignment]
        return found

    @graph.setter
    def graph(self, graph: FxGraph) -> None:
        if isinstance(graph, IrGraph):
            graph = FxGraph(graph)
        if not isinstance(graph, FxGraph):
            raise ArgumentError(f"GraphModule: the graph is {graph!r}, expected an fx.Graph")
        graph.owning_module = self
        self._graph = graph
        self.recompile()

    @property
    def code(self) -> str:
        """The Python of `forward`, as it runs."""
        return self._code

    def recompile(self) -> PythonCode:
        """Makes `forward` the code of the graph as it is now. Raises GraphError, and what a meta
        rule raises, before anything changes."""
        self.graph.lint()
        for node in self.graph.find_nodes(op="get_attr"):
            if value_at(self, node.target) is None:  # an edit has put it in
                self._take({}, self.graph, node.target, node.meta["val"])
        made = self.graph.python_code("self")
        self._run = function_of_code(made)
        self._code = made.src
        self._checks = InputChecks(self.graph._live())
        return made

    def forward(self, *args: Argument, **kwargs: Any) -> Any:
        """Runs the code. Raises ArgumentError for inputs of other types than the graph's."""
        codegen = self.graph._codegen
        inputs = codegen.process_inputs(*args, **kwargs)
        sizes = self._checks(inputs)
        return codegen.process_outputs(self._run(self, *inputs, *sizes))

    def compile(self, **options: Any) -> Any:
        """`aotlite.compile` of this module."""
        return compile_function(self, **options)

    def print_readable(self, print_output: bool = True) -> str:
        """The code with metas and the user's lines; printed and returned."""
        code = self.graph.python_code("self", verbose=True).src
        lines = "".join(f"    {line}\n" for line in code.splitlines())
        text = f"class {self._class_name}(al.nn.Module):\n{lines}"
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        return f"{self._class_name}()\n\n{self.code}"

    # --- submodules
    def add_submodule(self, target: str, m: Module) -> bool:
        """Sets the submodule of a dotted name, whose parents are made; returns whether it could:
        False where a parent is no Module."""
        owner: Module = self
        *path, last = target.split(".")
        for part in path:
            held = own_attributes(owner).get(part)
            if held is None:
                setattr(owner, part, Module())
            elif not isinstance(held, Module):
                return False
            owner = getattr(owner, part)
        setattr(owner, last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Removes the submodule of a dotted name; returns whether there was one."""
        owner: Any = self
        *path, last = target.split(".")
        for part in path:
            owner = own_attributes(owner).get(part) if isinstance(owner, Module) else None
        if not isinstance(owner, Module) or not isinstance(own_attributes(owner).get(last), Module):
            return False
        delattr(owner, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Removes the submodules in which the graph reads no attribute."""
        used = {node.target for node in self.graph.find_nodes(op="get_attr")}
        for name, _ in list(self.named_modules()):
            if name and not any(each.startswith(f"{name}.") for each in used):
                self.delete_submodule(name)

    # --- copies and files
    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made: GraphModule = object.__new__(type(self))
        memo[id(self)] = made
        for name, value in own_attributes(self).items():
            if name not in self._of_graph:
                setattr(made, name, copy.deepcopy(value, memo))
        made._class_name = self._class_name
        made.graph = copy.deepcopy(self.graph, memo)
        return made

    def __copy__(self) -> GraphModule:
        return GraphModule(self, copy.deepcopy(self.graph), self._class_name)

    def __reduce__(self) -> Args:
        return from_text, (self.to_text(),)

    def to_text(self) -> str:
        """The text of its file: data, and no code (FXG-15). Raises UnsupportedError for what no
        file can hold."""
        return module_files.dumps(self)

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Writes a package: `module.py` with the code, `module.json` with graph and constants.

        After `import folder`, `folder.FxModule()` is a Module that runs the code of `module.py`.
        """
        module_files.write_folder(self, os.fspath(folder), module_name)


class FolderModule(GraphModule):
    """The base of the class in a folder that `to_folder` wrote: it runs the code of its `run`.

    After `recompile()` it runs the code of its graph.
    """

    file: Path

    def __init__(self) -> None:
        self._load(self.file.read_text("utf-8"))

    def _load(self, text: str, *, runs_class: bool = True) -> None:
        found = module_files.loads(text)
        super().__init__(found.attributes, found.graph, type(self).__name__)
        self.train(found.training)
        if runs_class:
            self._run = type(self).run

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = super().__deepcopy__(memo)
        made._run = self._run
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return from_folder, (type(self), self.to_text(), self._run is type(self).run)

    def run(self, *inputs: Any) -> Any:
        """The computation; the class of the folder has it."""
        raise AssertionError(f"{type(self).__name__} says what it computes")


def from_folder(kind: type[FolderModule], text: str, runs_class: bool) -> FolderModule:
    """The module of a pickle of a folder's class."""
    made: FolderModule = object.__new__(kind)
    made._load(text, runs_class=runs_class)
    return made


def from_text(text: str) -> GraphModule:
    """The GraphModule of a text that `to_text` wrote. Raises FormatError for another one."""
    found = module_files.loads(text)
    made = GraphModule(found.attributes, found.graph, found.class_name)
    made.train(found.training)
    return made


_AL = SimpleNamespace(no_grad=no_grad)


def function_of_code(made: PythonCode) -> Any:
    """The function of generated code; tracebacks show its lines."""
    scope: Kwargs = {"ops": FUNCTIONS, "al": _AL, **made.globals}
    file = f"<fx.GraphModule {abs(hash(made.src)):x}>"
    try:
        exec(compile(made.src, file, "exec", dont_inherit=True), scope)
    except SyntaxError as error:
        raise noted(
            ArgumentError(f"recompile: the code has a syntax error ({error}), expected Python"),
            made.src,
        ) from error
    linecache.cache[file] = len(made.src), None, made.src.splitlines(keepends=True), file
    return scope["forward"]
