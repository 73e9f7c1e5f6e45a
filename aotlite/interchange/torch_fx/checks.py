"""What `from_fx` refuses by looking at a module, before it makes anything. Spec:
`specs/torch_fx.md`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.interchange.torch_fx.values import the_torch
from aotlite.ir.errors import ArgumentError, UnsupportedError, noted

INLINE = (
    "make_fx(module)(*args), of torch.fx.experimental.proxy_tensor, and "
    "torch.export.export(module, args).graph_module inline them"
)


def check_nodes(module: Any, is_known: Callable[[Any], bool]) -> None:
    """Raises UnsupportedError that names every node which cannot cross."""
    _check_order(module)
    lines = []
    for node in module.graph.nodes:
        reason = _reason(module, node, is_known)
        if reason is not None:
            lines.append(f"{node.name} {reason}")
    if lines:
        raise noted(
            UnsupportedError(
                f"from_fx: {len(lines)} nodes of {module._get_name()} cannot cross, expected none: "
                + "; ".join(lines)
            ),
            f"Instead: {INLINE}. (XFX-8)",
        )


def _check_order(module: Any) -> None:
    """Raises ArgumentError for a node that reads one of another graph, or one behind it."""
    nodes, seen = set(module.graph.nodes), set()
    for node in module.graph.nodes:
        for each in node.all_input_nodes:
            if each in seen:
                continue
            where = "stands behind it" if each in nodes else "is erased, or of another graph"
            raise noted(
                ArgumentError(
                    f"from_fx: node {node.name} reads {each.name}, which {where}, expected a node "
                    "before it"
                ),
                "module.graph.lint() says so, too: it is no graph that PyTorch runs. (XFX-13)",
            )
        seen.add(node)


def _reason(module: Any, node: Any, is_known: Callable[[Any], bool]) -> str | None:
    """Why a node cannot cross; None if it can."""
    if node.op == "call_module":
        if not any(name == node.target for name, _ in module.named_modules(remove_duplicate=False)):
            return f"calls the module {node.target!r}, which there is not"
        kind = type(module.get_submodule(node.target)).__name__
        return f"calls the module {node.target!r}, a {kind}"
    if node.op == "get_attr" and not _is_tensor(module, node.target):
        return f"reads {node.target!r}, which is no tensor"
    if node.op in ("call_function", "call_method") and node.kwargs.get("out") is not None:
        return "has an argument 'out', which is written"
    if node.op == "call_method" and not hasattr(the_torch().Tensor, node.target):
        return f"calls the method {node.target!r}, which tensors lack"
    if node.op == "call_function":
        return _reason_of_target(node.target, is_known)
    return None


def _is_tensor(module: Any, path: str) -> bool:
    value = module
    for name in path.split("."):
        value = getattr(value, name, None)
    return isinstance(value, the_torch().Tensor)


def _reason_of_target(target: Any, is_known: Callable[[Any], bool]) -> str | None:
    ops = the_torch()._ops
    if isinstance(target, ops.OpOverload):
        if target.namespace != "aten":
            return f"calls {target}, an op of the namespace {target.namespace!r}"
        if target._schema.is_mutable and any(a.is_out for a in target._schema.arguments):
            return f"calls {target}, which writes its argument 'out'"
        return None if is_known(target) else f"calls {target}, for which there is no op"
    if isinstance(target, ops.HigherOrderOperator):
        return f"calls the higher-order op {target}"
    if isinstance(target, ops.OpOverloadPacket):
        known = str(target).startswith("aten.")
        return None if known else f"calls {target}, an op of another namespace"
    place = getattr(target, "__module__", None) or ""
    known = place.partition(".")[0] in _PLACES or hasattr(the_torch(), target.__name__)
    return None if known else f"calls {place}.{target.__qualname__}, which PyTorch does not define"


_PLACES = frozenset("torch _operator operator builtins math".split())
"""The packages whose functions are called."""
