"""Every public name of torch.fx has its meaning here, or a row with what replaces it (FXG-1)."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import aotlite.fx.passes  # noqa: F401
from aotlite import fx
from aotlite.fx.core.replaced import replaced_names
from aotlite.fx.interpreter import TransformerTracer

CLASSES = ("Graph", "Node", "GraphModule", "Interpreter", "Transformer", "Tracer", "Proxy")
PAGE = Path(__file__).parents[2] / "docs" / "fx.md"


def instances() -> dict[str, object]:
    """An object of each class: some names are attributes of instances."""
    module = fx.symbolic_trace(lambda x: x * 2, "f32[2]")
    tracer = fx.Tracer()
    tracer.trace(lambda x: x * 2, inputs=("f32[2]",))
    node = module.graph.find_nodes(op="call_function")[0]
    return {
        "fx": fx,
        "Graph": module.graph,
        "Node": node,
        "GraphModule": module,
        "Interpreter": fx.Interpreter(module),
        "Transformer": fx.Transformer(module),
        "Tracer": tracer,
        "Proxy": fx.Proxy(node),
    }


def public(thing: object) -> set[str]:
    """The public names of a class, or of a module without what it imports from elsewhere."""
    names = {name for name in dir(thing) if not name.startswith("_")}
    if isinstance(thing, ModuleType):
        return {name for name in names if _is_own(thing, getattr(thing, name))}
    return names


def _is_own(module: ModuleType, value: object) -> bool:
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return str(home).startswith(module.__name__) or not home


@pytest.mark.torch
@pytest.mark.rules("FXG-1")
def test_no_public_name_of_torch_fx_is_without_meaning_or_row() -> None:
    torch = pytest.importorskip("torch", "2.13")
    importlib.import_module("torch.fx.passes")
    graph = torch.fx.symbolic_trace(torch.nn.Identity()).graph
    theirs = {name: public(getattr(torch.fx, name)) for name in CLASSES}
    theirs["fx"] = public(torch.fx)
    theirs["Node"] |= public(next(iter(graph.nodes)))
    theirs["Tracer"] |= public(torch.fx.Tracer())
    theirs["GraphModule"] -= public(torch.nn.Module)
    assert sum(map(len, theirs.values())) > 130
    mine = instances()
    missing = [
        f"{owner}.{name}"
        for owner, names in theirs.items()
        for name in names
        if not hasattr(mine[owner], name) and name not in replaced_names()[owner]
    ]
    assert [] == missing


def rows() -> list[tuple[str, str]]:
    return [(owner, name) for owner, each in replaced_names().items() for name in each]


@pytest.mark.parametrize(("owner", "name"), rows())
def test_a_replaced_name_says_what_replaces_it(owner: str, name: str) -> None:
    with pytest.raises(fx.ReplacedNameError, match=rf"fx\.{owner}\.{name} has another word") as got:
        getattr(instances()[owner], name)
    assert isinstance(got.value, AttributeError)
    assert replaced_names()[owner][name] in str(got.value)


def test_other_names_are_plainly_absent() -> None:
    for thing in instances().values():
        with pytest.raises(AttributeError) as got:
            getattr(thing, "no_such_name")  # noqa: B009
        assert not isinstance(got.value, fx.ReplacedNameError)


def test_the_page_has_every_row() -> None:
    text = PAGE.read_text("utf-8")
    for owner, each in replaced_names().items():
        for name, row in each.items():
            assert f"| `{owner}.{name}` | {row} |" in text


def test_tracers_of_transformers_have_the_hooks_too() -> None:
    assert TransformerTracer._called == "Tracer"
    assert inspect.isfunction(TransformerTracer.create_arg)
