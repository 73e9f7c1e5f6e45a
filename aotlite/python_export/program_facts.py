"""`PythonProgram`: the facts from which a file is written, and where they come from.

`program_of` takes them from an entry of a compiled function, and from a call of it where one is
given: names of arguments, values of what the function reaches outside. Rules: PYX-1, PYX-2, PYX-9.
Spec: `specs/to_python.md`.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import numpy as np
from optree import PyTreeSpec

from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays import host_array
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Family, Hidden, MutatedInput, Primal
from aotlite.ir.graph.symbolic.binding import names_among
from aotlite.pipeline.containers.argument_writes import writes_containers
from aotlite.pipeline.containers.leaf_paths import Field, paths_in
from aotlite.pipeline.request import CompiledEntry
from aotlite.python_export.file_functions import _window
from aotlite.python_export.file_parts import entry_name
from aotlite.python_export.kernels.argument_text import literal
from aotlite.python_export.symbolic_sizes import NO_SIZES, SizeFacts, size_facts
from aotlite.python_export.values.state_arrays import shared_copies
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Containers, NumpyResult
from aotlite.stages.records.convention import Convention
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath, take
from aotlite.stages.records.guards.access_words import FRAME, item_text
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.synthetic_base import BaseInput


@attrs.frozen(eq=False)
class PythonArgument:
    """A leaf of the arguments that the file takes."""

    text: str
    """How the file reaches it: `x`, `batch["x"]`."""
    index: int
    """Its place among the flat arguments."""
    number: object = None
    """The number for which the file is written; None for an array."""
    is_number: bool = False
    same_as: int | None = None
    """The place of an earlier argument that is the same array."""
    is_view: bool = False
    """Whether it was a view: the gradient of an `as_strided` of it leads to its base (FUN-11)."""
    chain: ViewChain | None = None
    """The views from its base; None where they are not known."""


@attrs.frozen(eq=False)
class StateArray:
    """An array that the function reaches outside of its arguments."""

    role: Hidden
    key: str
    value: np.ndarray | None
    """None where the caller must give it."""
    around: np.ndarray | None = None
    """The memory that the synthetic base has of which it is the anchor."""
    chain: ViewChain | None = None
    """The views from its base; None where they are not known."""


@attrs.frozen(eq=False)
class GradientOrder:
    """One order behind the first, for gradients of all results that have a history."""

    forward: Graph | None
    """Computes the gradients of the order before, from its saved values and its cotangents. None
    where the results are views of inputs, and have no graph of gradients."""
    backward: Graph | None
    """None where these gradients have none."""
    gradients: tuple[tuple[Any, int], ...]
    """(input, index of the result of `forward` that is its gradient)."""


@attrs.frozen(eq=False)
class PythonProgram:
    """A program as `entry_text` writes it."""

    name: str
    about: str
    """Which function it is, and where it stands."""
    parameters: tuple[str, ...]
    arguments: tuple[PythonArgument, ...]
    state: tuple[StateArray, ...]
    forward: Graph
    backward: Graph | None
    meta: FunctionMeta
    convention: Convention
    spec: PyTreeSpec
    """The containers of the results."""
    numpy_results: tuple[NumpyResult | None, ...]
    generator: tuple[int, int]
    """The seed and the offset at which the file's random stream begins."""
    sizes: SizeFacts = NO_SIZES
    orders: tuple[GradientOrder, ...] = ()
    """The orders of derivatives behind the first one."""

    def argument(self, index: int) -> str:
        """The text of a flat argument."""
        found = next((each for each in self.arguments if each.index == index), None)
        if found is None:
            raise _refused(f"flat argument {index} is neither an array nor a number")
        return found.text

    def key(self, role: Any) -> str:
        """The name of an input, in messages, in the state and among gradients."""
        if isinstance(role, Primal):
            return self.argument(role.index)
        return next((each.key for each in self.state if each.role == role), str(role))

    def chain_of(self, role: Any) -> ViewChain | None:
        """The views from the base of an input to it; None where they are not known."""
        of_arguments = {Primal(each.index): each.chain for each in self.arguments}
        return (of_arguments | {each.role: each.chain for each in self.state}).get(role)


def _refused(what: str, instead: str = "Leave it outside of the compiled function.") -> Exception:
    text = f"to_python: {what}, expected what a file of NumPy can do"
    return noted(UnsupportedError(text), f"{instead} (PYX-9)")


class ProgramParts(Protocol):
    """What stages 1 to 8 made, as an entry and a program have it."""

    @property
    def meta(self) -> FunctionMeta: ...
    @property
    def convention(self) -> Convention | None: ...
    @property
    def partition(self) -> Partition: ...
    @property
    def containers(self) -> Containers: ...


# --------------------------------------------------------------------------------- from an entry
@attrs.frozen(eq=False)
class GivenCall:
    """A call of the function: its flat arguments, and the containers of (args, kwargs)."""

    leaves: Sequence[Any]
    spec: PyTreeSpec


def program_of(
    function: Callable[..., Any],
    name: str,
    entry: CompiledEntry,
    call: GivenCall,
    generator: tuple[int, int],
) -> PythonProgram:
    """The facts of an entry. Raises UnsupportedError for what no file can hold (PYX-9)."""
    check_writable(entry)
    texts = leaf_texts(function, call.spec)
    for index, way in entry.reached.items():
        raise _refused(
            f"argument {texts[index]} is also reached as {state_key(way, call.leaves, texts)}",
            "Pass that tensor as an argument alone, or reach it only outside of the arguments.",
        )
    if writes_containers(entry.containers.spec):
        raise _refused(
            "the function changes a list or dict among its arguments",
            "Return what it puts there, and put it into the container outside.",
        )
    state = _state(entry, call, texts)
    return facts_of(
        entry,
        entry_name(name),
        _about(function, name),
        _arguments(call, texts),
        state,
        generator,
        _sizes(entry, call),
    )


def facts_of(
    parts: ProgramParts,
    name: str,
    about: str,
    arguments: Sequence[PythonArgument],
    state: Sequence[StateArray],
    generator: tuple[int, int],
    sizes: SizeFacts,
) -> PythonProgram:
    """The facts of what stages 1 to 8 made, with what its file calls arguments and state."""
    assert parts.convention is not None and parts.containers.spec is not None
    for each in arguments:
        if not _is_expression(each.text):
            raise _refused(
                f"an argument is named {each.text!r}"[:100], "Give it a name of Python's."
            )
    return PythonProgram(
        name=name,
        about=about,
        parameters=parameters_in([each.text for each in arguments]),
        arguments=tuple(arguments),
        state=tuple(state),
        forward=parts.partition.forward,
        backward=parts.partition.backward,
        meta=parts.meta,
        convention=parts.convention,
        spec=parts.containers.spec,
        numpy_results=parts.containers.numpy_results,
        generator=generator,
        sizes=sizes,
    )


def _sizes(entry: CompiledEntry, call: GivenCall) -> SizeFacts:
    """The symbols of an entry for many sizes."""
    inputs = entry.partition.forward.placeholders
    shapes: dict[Any, tuple[int, ...]] = {}
    for node in inputs:
        role = node.role
        if isinstance(role, Primal):
            shapes[role] = call.leaves[role.index].shape
        elif isinstance(role, Hidden):
            shapes[role] = entry.hidden[role.index].resolve(list(call.leaves)).shape
        elif names_among([node.meta]):
            raise _refused("arguments that overlap have symbols for sizes")
    sizes = getattr(entry.guarded, "sizes", None)
    rooms = {} if sizes is None else sizes.rooms
    return size_facts(graphs_of(entry), shapes, getattr(entry.guarded, "guards", ()), rooms)


def graphs_of(parts: ProgramParts) -> list[Graph]:
    """The forward, and the backward if there is one."""
    found = [parts.partition.forward]
    return found + ([] if parts.partition.backward is None else [parts.partition.backward])


def _about(function: Any, name: str) -> str:
    called = getattr(function, "forward", function)
    code = getattr(inspect.unwrap(called), "__code__", None)
    place = (
        "" if code is None else f", line {code.co_firstlineno} of {_file_name(code.co_filename)}"
    )
    return f"`{name}`{place}"


def _file_name(path: str) -> str:
    return re.split(r"[\\/]", path)[-1]


def leaf_texts(function: Callable[..., Any] | None, spec: PyTreeSpec) -> list[str]:
    """The expression of each flat argument, from the function's parameters."""
    names = [] if function is None else _parameter_names(function)
    texts = []
    for which, first, *rest in paths_in(spec):
        name = first if which == 1 else names[first] if first < len(names) else f"arg_{first}"
        texts.append(str(name) + "".join(map(_step, rest)))
    return texts


def _step(step: object) -> str:
    return f".{step}" if isinstance(step, Field) else f"[{literal(step)}]"


def _is_expression(text: str) -> bool:
    """Whether it is a parameter, or an item or field of one: `batch['y'][0]`."""
    try:
        found: Any = ast.parse(text, mode="eval").body
        is_whole = found.col_offset == 0 and found.end_col_offset == len(text.encode())
        while isinstance(found, (ast.Subscript, ast.Attribute)):
            if isinstance(found, ast.Attribute):
                is_whole = is_whole and not found.attr.startswith("__")
            else:
                ast.literal_eval(found.slice)
            found = found.value
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return False
    return is_whole and text.isprintable() and isinstance(found, ast.Name)


def parameters_in(texts: Iterable[str]) -> tuple[str, ...]:
    """The parameters of a function that reaches its arguments by these expressions.

    >>> parameters_in(["x", "batch[0]", "batch.y"])
    ('x', 'batch')
    """
    return tuple(dict.fromkeys([re.split(r"[\[.]", text, maxsplit=1)[0] for text in texts]))


def _parameter_names(function: Any) -> list[str]:
    called = getattr(function, "forward", function)
    try:
        found = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [each.name for each in found if each.kind in kinds]


def _arguments(call: GivenCall, texts: Sequence[str]) -> list[PythonArgument]:
    found, first = [], dict[int, int]()
    for index, leaf in enumerate(call.leaves):
        if isinstance(leaf, Tensor):
            same = first.setdefault(id(leaf), index)
            first_place = None if same == index else same
            is_view = leaf._base is not None
            facts = texts[index], index, None, False, first_place, is_view, leaf._chain
            found.append(PythonArgument(*facts))
        elif isinstance(leaf, (bool, int, float, complex)):
            found.append(PythonArgument(texts[index], index, leaf, is_number=True))
    return found


def _state(entry: CompiledEntry, call: GivenCall, texts: Sequence[str]) -> list[StateArray]:
    found = {i: way.resolve(list(call.leaves)) for i, way in entry.hidden.items()}
    keys = [state_key(way, call.leaves, texts) for way in entry.hidden.values()]
    tensors = [x if isinstance(x, Tensor) else None for x in found.values()]
    assert entry.convention is not None
    roles = [Hidden(i) for i in found]
    return state_arrays(dict(zip(roles, keys, strict=True)), tensors, entry.convention.bases)


def state_arrays(
    keys: Mapping[Hidden, str], tensors: Sequence[Tensor | None], bases: Sequence[BaseInput]
) -> list[StateArray]:
    """The state with copies of the tensors, which share memory as these do."""
    whole = {base.anchor: base for base in bases if not base.whole}
    arrays = [None if each is None else host_array(each._data) for each in tensors]
    rows: list[np.ndarray] = []
    places: dict[tuple[Hidden, bool], int] = {}
    for role, array in zip(keys, arrays, strict=True):
        if array is not None:
            places[role, False] = len(rows)
            rows.append(array)
            if role in whole:
                meta = whole[role].meta
                span = meta.span * meta.dtype.itemsize
                places[role, True] = len(rows)
                rows.append(_window(array, (span,), (1,), whole[role].start, np.uint8))
    copies = [*shared_copies(rows), None]
    return [
        StateArray(
            role,
            key,
            value=copies[places.get((role, False), -1)],
            around=copies[places.get((role, True), -1)],
            chain=None if tensor is None else tensor._chain,
        )
        for (role, key), tensor in zip(keys.items(), tensors, strict=True)
    ]


def state_key(way: AccessPath, leaves: Sequence[Any], texts: Sequence[str]) -> str:
    """The name of a hidden input: `model.weight`, by the names of parameters and variables."""
    value = way.function if way.argument is None else leaves[way.argument]
    text = "" if way.argument is None else texts[way.argument]
    fixed: Any = None
    for kind, key in way.path:
        names = getattr(value, FRAME, None) if kind == "member" else None
        if fixed is not None:
            text, fixed = fixed[key], None
        elif names is not None and key in ("args", "keywords"):
            fixed = names
        elif names is not None and key in ("__wrapped__", "func"):
            pass
        elif kind == "cell":
            text = value.__code__.co_freevars[key]
        elif kind == "global":
            text = key
        elif kind == "item":
            text += item_text(value, key)
        elif kind == "grad":
            text = f"{text}.grad"
        else:
            text = f"{text}.{key}" if text else str(key)
        value = take(value, kind, key) if value is not NOTHING else NOTHING
    return text


# ------------------------------------------------------------------------------------- refusals
def check_writable(entry: ProgramParts) -> None:
    """Raises UnsupportedError for a function of which a file would leave something out."""
    meta = entry.meta
    if meta.wrappers:
        raise _refused("the function has wrapper subclasses among its inputs or results")
    if meta.hooks:
        raise _refused("each call registers hooks")
    if entry.convention is not None and entry.convention.tokens:
        raise _refused("the function has effects")
    for each in meta.inputs:
        if each.writes_storage or each.resizes_storage:
            raise _refused(f"the function puts {each.place} onto other memory")
        if each.writes_metadata:
            raise _refused(f"the function changes the shape or strides of {each.place}")
        if each.written_late:
            raise _refused(f"the backward writes {each.place}")
    roles = [*entry.partition.forward.output_roles]
    if any(isinstance(r, MutatedInput) and isinstance(r.of, Family) for r in roles):
        raise _refused("inputs that overlap have one history, and are written")
