"""Appends the inner tensors of returned wrappers to the results, level by level (SUB-3, SUB-4).

A graph returns dense tensors only; the runtime rebuilds the wrapper from them (`SubclassMeta`).
Stage 2 runs inside this function: it has to analyze the inner tensors as results of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import inner_tensors, is_wrapper
from aotlite.ir.graph import Graph, output_node
from aotlite.ir.graph.role import IntermediateBase, Part, Role
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.metadata.function_facts import Alias, Plain
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.s2_analyze.subclass_views import check_views
from aotlite.stages.shared.subclass_rebuild import (
    input_subclass_metas,
    rebuilt_wrapper,
    subclass_meta_of,
)


# --------------------------------------------------------------------------------------- results
def with_parts(
    captured: Captured, analyze: Callable[[Captured], FunctionMeta]
) -> tuple[Captured, FunctionMeta]:
    """The capture with the parts of new wrappers as further results, and its metadata.

    Repeats `analyze` until no new wrapper has unknown parts. Wrappers that are inputs, or views of
    inputs, are not taken apart.
    """
    meta = analyze(captured)
    if not captured.recorder.wrapped:
        return captured, meta
    while True:
        made: dict[Any, Tensor] = dict(_made(captured, meta))
        new = {
            Part(role, name): captured.recorder.here(inner)
            for role, wrapper in made.items()
            for name, inner in inner_tensors(wrapper).items()
            if Part(role, name) not in captured.parts
        }
        if not new:
            check_views(captured, meta)
            return captured, attrs.evolve(
                meta, wrappers=_wrappings(captured, made), inside=dict(_inside(captured, meta))
            )
        captured = _extended(captured, new)
        meta = analyze(captured)


def _made(captured: Captured, meta: FunctionMeta) -> Iterator[tuple[Role, Tensor]]:
    """(role, wrapper) for wrappers that the runtime has to build: plain results, and bases."""
    for index, output in enumerate(meta.outputs):
        result = captured.results[index]
        if isinstance(output, Plain) and is_wrapper(result):
            yield captured.role_of(index), result
    for index, base in enumerate(meta.bases):
        assert base.node is not None
        wrapper = captured.recorder.wrapped.nodes.get(base.node)
        if wrapper is not None:
            yield IntermediateBase(index), wrapper


def _inside(captured: Captured, meta: FunctionMeta) -> Iterator[tuple[int, tuple[int, str]]]:
    """(index, (outer, path)) of results that are inner tensors of another result, a wrapper view.

    The class makes that view at run time, and its inner tensor with it.
    """
    places: dict[int, tuple[int, str]] = {}
    for index, output in enumerate(meta.outputs):
        result = captured.results[index]
        if isinstance(output, Alias) and is_wrapper(result):
            for path, part in _within(result):
                places.setdefault(id(part), (index, path))
    for index, output in enumerate(meta.outputs):
        place = places.get(id(captured.results[index]))
        if place is not None and isinstance(output, Alias) and not output.view.own_history:
            yield index, place


def _within(wrapper: Tensor) -> Iterator[tuple[str, Tensor]]:
    """(path, inner tensor) at any depth; a path is such as `a.b`."""
    for name, part in inner_tensors(wrapper).items():
        yield name, part
        if is_wrapper(part):
            yield from [(f"{name}.{path}", inner) for path, inner in _within(part)]


def _extended(captured: Captured, new: dict[Part, Tensor]) -> Captured:
    results = (*captured.results, *new.values())
    parts = (*captured.parts, *new)
    longer = attrs.evolve(captured, results=results, parts=parts)
    values = [each.value if isinstance(each, Tensor) else None for each in results]
    closing = output_node(values, [longer.role_of(index) for index in range(len(results))])
    graph = Graph((*captured.graph.nodes[:-1], closing), captured.graph.name)
    return attrs.evolve(longer, graph=graph)


def _wrappings(captured: Captured, made: dict[Role, Tensor]) -> dict[Role, SubclassMeta]:
    found = input_subclass_metas(captured.recorder, captured.inputs)
    for role, wrapper in made.items():
        found[role] = subclass_meta_of(wrapper, role, {})
        rebuilt_wrapper(captured.recorder, wrapper, inner_tensors(wrapper))  # as the runtime will
    return found
