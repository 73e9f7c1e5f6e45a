"""`docs/differences.md` names what PyTorch's sources have: every name here exists, none is missing.

Of wrapper subclasses, effects and random numbers.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import aotlite

ROOT = Path(__file__).parents[1]
PACKAGE = Path(aotlite.__file__).parent
PAGE = (ROOT / "docs" / "differences.md").read_text("utf-8")
NAMES = PAGE[PAGE.index("## Names") :]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in NAMES.splitlines()
    if line.startswith("| ") and not line.startswith("| PyTorch |")
]
CODE = re.compile(r"`([^`]+)`")
NAME = re.compile(r"\.?[A-Za-z_][\w.]*")


class Known:
    """What the sources of aotlite define: plain names, and the members of classes."""

    def __init__(self) -> None:
        self.names: set[str] = set(dir(builtins))
        self.members: dict[str, set[str]] = {}
        self.bases: dict[str, list[str]] = {}
        folders = (PACKAGE, ROOT / "ir", ROOT / "backends")
        for path in (path for folder in folders for path in folder.rglob("*.py")):
            self._read(ast.parse(path.read_text("utf-8")))
        self.names |= {name for members in self.members.values() for name in members}

    def _read(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.names.add(node.name)
                self.members.setdefault(node.name, set()).update(_members(node))
                self.bases[node.name] = [
                    base.id
                    for base in node.bases
                    if type(base) is ast.Name and base.id != node.name
                ]
            elif isinstance(node, ast.FunctionDef):
                self.names.add(node.name)
                self.names.update(each.arg for each in (*node.args.args, *node.args.kwonlyargs))
            elif isinstance(node, ast.Constant) and node.value in aotlite.ir.op.OPS:
                self.names.add(str(node.value))
        self.names.update(_targets(tree))

    def __contains__(self, name: str) -> bool:
        if name.startswith("."):
            return name[1:] in self.names
        first, _, rest = name.partition(".")
        if first == "aotlite":
            return _imported(name)
        return self._has(first, rest) if rest else first in self.names

    def _has(self, owner: str, member: str) -> bool:
        """Whether a class or one of its bases has a member."""
        own = member in self.members.get(owner, ())
        return own or any(self._has(base, member) for base in self.bases.get(owner, ()))


def _members(node: ast.ClassDef) -> Iterator[str]:
    yield from _targets(node)
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef):
            yield inner.name
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            yield inner.attr


def _targets(node: Any) -> Iterator[str]:
    for inner in node.body:
        if isinstance(inner, (ast.Assign, ast.AnnAssign)):
            targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
            yield from [each.id for each in targets if isinstance(each, ast.Name)]


def _imported(name: str) -> bool:
    found: Any = aotlite
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found is not None


@cache
def known() -> Known:
    """Read once, and only by the process that runs these tests: it takes seconds."""
    return Known()


def here(row: list[str]) -> list[str]:
    """The names and files of aotlite in a row, without arguments."""
    return [code for code in CODE.findall(row[1]) if code != "the same"]


def test_the_table_is_read() -> None:
    assert all(len(row) in (2, 3) for row in ROWS)
    assert len(ROWS) > 50


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_what_a_name_is_called_here_exists(row: list[str]) -> None:
    """A function, class, member, argument, op or file."""
    for code in here(row):
        if code.endswith(".py"):
            assert (PACKAGE / code).exists() or (ROOT / code).exists(), code
        else:
            found = NAME.match(code)
            assert found is not None and found[0] in known(), f"{code} is nowhere"
    if row[1].startswith("the same"):
        missing = [code for code in CODE.findall(row[0]) if code not in known()]
        assert [] == [code for code in missing if not _is_hook(code)]


def _is_hook(name: str) -> bool:
    """Whether classes of users define it, by this name, and aotlite calls it."""
    texts = [path.read_text("utf-8") for path in (PACKAGE / "eager").rglob("*.py")]
    return any(name in text for text in texts)


def test_what_does_not_exist_is_found_out() -> None:
    for name in ("no_such_function", "aotlite.no_such", "CreationRecord.no_such", ".no_such"):
        assert name not in known()


WANTED = """
    requires_subclass_dispatch create_subclass_meta SubclassCreationMeta creation_fn
    unwrap_tensor_subclasses wrap_tensor_subclasses is_joint_structure
    wrap_tensor_subclasses_maybe_joint num_fw_outs_saved_for_bw is_runtime
    create_metadata_for_subclass compute_inner_mutated_inp_indices_from_subclass_meta
    subclass_inp_meta subclass_fw_graph_out_meta subclass_tangent_meta __tensor_flatten__
    __tensor_unflatten__ is_traceable_wrapper_subclass strict_zip aot_dispatch_subclass
    PlainTensorMeta OpaqueMeta SubclassMeta MemoryFormatMeta compute_outer_size_and_stride
    runtime_unwrap_tensor_subclasses unwrap_tensor_subclasses_with_indices_to_original
    remap_unwrapped_subclass_arg_indices get_types_for_subclass AOTDispatchSubclassWrapper
    coerce_tangent_and_suggest_memory_format process_runtime_tangent mirror_autograd_meta_to _sync
    handle_effect_tokens_fn unlift_tokens EffectTokensWrapper has_effects get_effect_key
    new_token_tensor SIDE_EFFECTS num_backward_tokens _register_effectful_op
    FunctionalizedRngRuntimeWrapper PhiloxState PhiloxStateTracker philox_rand_offset
    num_outputs_rng_offset is_rng_op_functionalized create_functionalized_rng_ops_wrapper
""".split()


@pytest.mark.parametrize("name", WANTED)
def test_a_name_of_pytorchs_sources_is_in_the_table(name: str) -> None:
    there = {code for row in ROWS for code in CODE.findall(row[0])}
    assert name in {part for code in there for part in code.split(".")}


SOURCES = [
    "torch._functorch._aot_autograd.subclass_utils",
    "torch._functorch._aot_autograd.subclass_parametrization",
    "torch._higher_order_ops.effects",
    "torch._prims.rng_prims",
]
OWN_MACHINERY = """
    with_effects_dense with_effects_fake with_effects_functional with_effects_proxy
    register_graphsafe_run_with_rng_state_op register_graphsafe_rng_dispatch
    register_run_and_save_rng_state_op register_run_with_rng_state_op register_run_dtensor_rng_op
    get_device
""".split()
"""How PyTorch's dispatcher is told of an op: what is in the table for the op is for these, too."""


@pytest.mark.torch
@pytest.mark.parametrize("source", SOURCES)
def test_all_that_pytorch_defines_for_it_is_in_the_table(source: str, torch: Any) -> None:
    """Functions and classes without an underscore, of the version that is installed."""
    module = importlib.import_module(source)
    own = {
        name
        for name, value in vars(module).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == source
        and not name.startswith("_")
    }
    there = " ".join(code for row in ROWS for code in CODE.findall(row[0]))
    listed = set(re.findall(r"\w+", there))
    assert [] == sorted(own - listed - set(OWN_MACHINERY))
    assert len(own) > 1
