"""Random pure graphs of views and scatters on one small tensor, drawn as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from aotlite.ir.errors import AotliteError
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder, Proxy
from aotlite.ir.graph.role import Gradient, IntermediateBase, MutatedInput, Output, Primal, Role
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import tensor_meta

VIEWS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    *[("select", (dim, index)) for dim in (0, 1) for index in (0, 1)],
    *[("slice", (0, a, b, step)) for a, b, step in ((0, 2, 1), (1, 3, 1), (0, 4, 2), (1, 4, 2))],
    *[("slice", (1, a, b, 1)) for a, b in ((0, 1), (1, 3), (0, 3), (0, 0))],
    *[("diagonal", (offset, 0, 1)) for offset in (0, 1, -1)],
    ("t", ()),
    ("transpose", (0, 1)),
    ("permute", ((1, 0),)),
    ("unsqueeze", (0,)),
    ("squeeze", (None,)),
    ("view", ((12,),)),
    ("view", ((3, 4),)),
    ("view", ((4, 3),)),
    ("view", ((2, 6),)),
    ("expand", ((2, -1, -1),)),
    ("unfold", (0, 2, 2)),
    ("unfold", (0, 1, 2)),
    ("unfold", (0, 2, 1)),
    ("as_strided", ((2, 2), (3, 1), 1)),
    ("as_strided", ((3,), (2,), 0)),
    ("as_strided", ((2, 2), (1, 1), 0)),
)
"""Each is tried where its operand allows it."""
SCATTERED = ("select", "slice", "diagonal", "unfold", "as_strided")

Step = tuple[str, int, int, int]
"""What, the operand counted from the newest value, the view, and another operand or number."""

steps: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(("view", "view", "scatter", "scatter", "rewrite", "change", "add")),
        st.sampled_from((0, 0, 0, 1, 1, 2, 3, 7)),
        st.integers(0, len(VIEWS) - 1),
        st.integers(0, 7),
    ),
    min_size=3,
    max_size=14,
)
copying: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(("view", "view", "scatter", "rewrite", "change", "add", "copy")),
        st.sampled_from((0, 0, 0, 1, 1, 2, 3, 7)),
        st.integers(0, len(VIEWS) - 1),
        st.integers(0, 7),
    ),
    min_size=3,
    max_size=16,
)
"""With copies that lie as their operand does, and such that lie in rows."""
roles: st.SearchStrategy[list[int]] = st.lists(st.integers(0, 3), min_size=1, max_size=4)


def graph_of(program: list[Step], wanted: list[int], shape: tuple[int, ...] = (4, 3)) -> Graph:
    """The graph of the steps that are allowed. Results have memory of their own, as always."""
    build = Builder("windows")
    values = [build.placeholder(tensor_meta(shape), Primal(0))]
    for what, operand, view, other in program:
        try:
            values.append(_done(what, values, operand, VIEWS[view], other))
        except (AotliteError, IndexError):
            continue
    kinds: list[Any] = [Output, IntermediateBase, Gradient, MutatedInput]
    given: list[Role] = []
    results, owned = [], set()
    for i, kind in enumerate(wanted):
        value = values[-1 - i % len(values)]
        role = Gradient(Primal(i)) if kind == 2 else kinds[kind](Primal(0) if kind == 3 else i)
        if role in given:
            continue
        root = storage_root(value.node)
        if kind != 2 and (root.op != "call" or root in owned):
            value = value.clone()
            root = value.node
        owned.add(root)
        results.append(value)
        given.append(role)
    return build.finish(results, given)


def _done(what: str, values: list[Proxy], operand: int, view: Any, other: int) -> Any:
    value = values[-1 - operand % len(values)]
    name, args = view
    if name == "as_strided" and not (value.meta.dense and value.meta.span >= 6):
        raise IndexError(name)  # it looks at memory, not at elements
    match what:
        case "view":
            return value._do(name, *args)
        case "scatter" | "rewrite":
            if name not in SCATTERED:
                raise IndexError(name)
            seen = value._do(name, *args)
            if has_internal_overlap(seen.meta.shape, seen.meta.stride):
                raise IndexError(name)
            fitting = [each for each in values if each.meta.shape == seen.meta.shape]
            source = seen * 2.0 + float(other)
            if what == "rewrite":
                source = ([seen, *fitting])[other % (1 + len(fitting))]
            return value._do(f"{name}_scatter", source, *args)
        case "copy" if other % 2:
            return value.clone()
        case "copy":
            return value._do("restride", value.meta.as_contiguous().stride)
        case "change":
            return value * 2.0 + float(other)
    fitting = [each for each in values if each.meta.shape == value.meta.shape]
    return value + fitting[other % len(fitting)]


def input_of() -> dict[Any, Any]:
    """A value for the graph's input, each element another."""
    return {Primal(0): np.arange(12, dtype=np.float32).reshape(4, 3)}
