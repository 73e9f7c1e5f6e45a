"""Wrapper subclasses in a capture: fakes of those that are inputs, nodes for those made inside.

A wrapper's fake is an instance of its class over fakes of its parts (inner tensors), which are
inputs with roles of their own. An op on wrappers is recorded twice: as a node of the wrapper, and
as the ops on parts that its class runs. For w = Two(a, b):

    mul(w, 2)        a node of the wrapper: stage 2 reads aliases and writes from it
    mul(a, 2)        nodes of the parts: they read parts only
    mul(b, 2)

So stage 5 removes the wrappers' nodes, and a graph of dense tensors remains.
Used by the recorder alone. Rules: SUB-2, SUB-3, SUB-8, SUB-9. Spec: `specs/s5_desugar.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import refusals_apart
from aotlite.eager.subclass.checks import text_of
from aotlite.eager.subclass.protocol import (
    WrapperStorage,
    flatten,
    inner_tensors,
    is_wrapper,
    kept_spec,
    missing,
    same_spec,
)
from aotlite.ir.errors import SubclassError, noted
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import Hidden, Part, Primal
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op
from aotlite.ir.ops.structure import GETITEM, WRAP
from aotlite.stages.records.backward.required_tangents import RequiredArrivals
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.shared.memory.view_families import ViewFamilies
from aotlite.stages.shared.subclass_rebuild import rebuilt_wrapper


@attrs.define(eq=False, repr=False)
class SubclassFakes:
    """The wrappers of one capture."""

    recorder: CaptureTrace
    nodes: dict[Node, Tensor | None] = attrs.field(factory=dict)
    """Each node whose value is a wrapper, with the tensor, if the node made a new one."""
    parts: dict[InputRole, dict[str, InputRole]] = attrs.field(factory=dict)
    """The roles of the parts of each input that is a wrapper."""
    required_arrivals: list[RequiredArrivals] = attrs.field(factory=list)
    """Gradients that have to arrive together, unless each choice of them is recorded."""
    unlike: bool = False
    """Whether a gradient's class or spec depends on which tangents arrive: wrappers of several
    forms are summed, or a custom function gets None for absent ones."""
    _given: list[tuple[Tensor, dict[str, Tensor], TensorMeta, str]] = attrs.field(factory=list)
    """Fakes of input wrappers, with their parts and geometry at entry, and their places."""

    def __bool__(self) -> bool:
        return bool(self.nodes)

    def sized_meta(self, tensor: Tensor, role: InputRole, families: ViewFamilies) -> TensorMeta:
        """The meta of an input's fake: with symbols if it is an argument, or a part of one, and no
        view that shares its base with others."""
        sizes, whole = self.recorder.sizes, role.whole if isinstance(role, Part) else role
        if sizes is None or not isinstance(whole, Primal):
            return tensor.meta
        if any(map(families.has, with_parts_of([tensor]))):
            return tensor.meta
        return sizes.meta(role, tensor.meta)  # type: ignore[arg-type]

    def fake(
        self, tensor: Tensor, role: Primal | Hidden | Part, place: str, meta: TensorMeta
    ) -> Tensor:
        """An instance of the tensor's class over fakes of its parts, with this outer geometry."""
        names, spec = flatten(tensor)
        _check_spec(tensor, spec)
        inner, roles = {}, {}
        for name in names:
            part = getattr(tensor, name)
            part = self.recorder.input_for(part, Part(role, name), f"{place}.{name}")
            inner[name], roles[name] = part.fake, part.role
        fake = rebuilt_wrapper(self.recorder, tensor, inner, meta)
        self.parts[role] = roles
        self._given.append((fake, inner, fake.meta, place))
        fake.offset = tensor.offset
        return fake

    def storage(self, tensor: Tensor) -> Storage:
        """The storage of a wrapper's fake."""
        storage = WrapperStorage(type(tensor))
        storage.capture = self.recorder
        return storage

    def adopted(self, wrapper: Tensor) -> Tensor:
        """Gives a wrapper that the program constructed from tensors a `wrap` node."""
        parts = [self.recorder.here(part).value for part in inner_tensors(wrapper).values()]
        meta = wrapper.meta
        geometry = meta.shape, meta.stride, meta.dtype, meta.device
        args = (tuple(parts), type(wrapper).__name__, *geometry)
        wrapper.value = self.recorder.add_node(WRAP, args, meta)
        self.nodes[wrapper.value] = wrapper
        return wrapper

    def record(
        self, op: Op, args: tuple[object, ...], outs: tuple[Tensor, ...], meta: object
    ) -> tuple[Node | None, ...]:
        """Records a call that returns or writes wrappers; the nodes of those among `outs`."""
        for out in outs:
            for part in inner_tensors(out).values() if is_wrapper(out) else ():
                self.recorder.here(part)
        node = self.recorder.add_node(op, args, meta)
        if type(meta) is not tuple:
            made = not op.writes
            self.nodes[node] = outs[0] if made else None
            return (node,)
        self.nodes[node] = None
        found: list[Node | None] = []
        for k, (out, one) in enumerate(zip(outs, meta, strict=True)):
            value = self.recorder.add_node(GETITEM, (node, k), one) if is_wrapper(out) else None
            if value is not None:
                self.nodes[value] = out
            found.append(value)
        return tuple(found)

    def forget(self, nodes: Iterable[Node]) -> None:
        """Forgets dropped nodes: their wrappers get new nodes when they are used again."""
        for node in nodes if self.nodes else ():
            wrapper = self.nodes.pop(node, None)
            if wrapper is not None and wrapper.value is node:
                wrapper.value = None

    def put_in_order(self, inputs: list[Any], placeholders: list[Node]) -> None:
        """Sorts inputs: arguments before hidden ones, the parts of each with it (SUB-4)."""
        if self.parts:
            inputs.sort(key=lambda given: _place(given.role))
            placeholders.sort(key=lambda node: _place(node.role))

    def check_parts(self) -> None:
        """Refuses a function that replaced the parts, or the geometry, of an input wrapper."""
        for fake, inner, meta, place in self._given:
            if getattr(fake, "meta", None) is not meta:
                raise noted(
                    SubclassError(
                        f"capture: the geometry of {place}, a {type(fake).__name__}, is "
                        f"{getattr(fake, 'meta', 'gone')} afterwards, expected {meta}, as it was"
                    ),
                    "Nothing writes a wrapper's geometry: return a view or a new wrapper. (SUB-20)",
                )
            for name, part in inner.items():
                if getattr(fake, name, None) is not part:
                    raise self.recorder.refuse(
                        f"another tensor as attribute {name!r} of {place}, a "
                        f"{type(fake).__name__},",
                        "write the tensor that is there, with copy_ for instance, or return a new "
                        "wrapper (SUB-15)",
                    )

    def close(self) -> None:
        self.nodes, self.parts, self._given = {}, {}, []


def parts_by_role(
    role: Primal | Part, tensor: Tensor, whole: tuple[Primal | Part, Tensor] | None = None
) -> Iterator[tuple[Primal | Part, Tensor, tuple[Primal | Part, Tensor] | None]]:
    """An argument and its parts at any depth: role, tensor, and the wrapper that it is a part of.
    A class that cannot be taken apart has none here."""
    yield role, tensor, whole
    if is_wrapper(tensor) and not missing(type(tensor)):
        for name, part in inner_tensors(tensor).items():
            yield from parts_by_role(Part(role, name), part, (role, tensor))


def with_parts_of(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """The tensors, and the parts of wrappers among them, at any depth."""
    for tensor in tensors:
        yield tensor
        if is_wrapper(tensor) and tensor.storage.capture is None:
            yield from with_parts_of(inner_tensors(tensor).values())


def _place(role: Any) -> tuple[bool, int]:
    whole = role.whole if isinstance(role, Part) else role
    return isinstance(whole, Hidden), whole.index


def _check_spec(tensor: Tensor, spec: object) -> None:
    """SUB-21: an entry is valid for wrappers of an equal spec."""
    try:
        with refusals_apart():
            same = bool(spec == spec) and same_spec(kept_spec(spec), spec)
    except Exception:  # whatever a class's == raises
        same = False
    if not same:
        raise noted(
            SubclassError(
                f"{type(tensor).__name__}: it flattens to the spec {text_of(spec)}, which does not "
                "equal itself or its copy, expected a value that does, of Python's own kinds"
            ),
            "A compiled function asks at each call whether the spec is as it was. Keep tensors and "
            "arrays among the attributes that are named. (SUB-21)",
        )


def values_of(args: tuple[object, ...]) -> tuple[Any, ...]:
    """The graph values of the tensors among the arguments."""
    return tuple(
        [
            value.value
            if isinstance(value, Tensor)
            else (_listed(value) if type(value) is tuple else value)
            for value in args
        ]
    )


def _listed(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """The graph values of a list of tensors; any other tuple as it is."""
    if value and isinstance(value[0], Tensor):
        return tuple([item.value for item in value])
    return value
