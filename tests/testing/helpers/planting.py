"""Ten aliasing bugs to plant in the pipeline, which random programs must find.

A plant is other text in one function, which is compiled anew in its module; it fails loudly where
the text is not there any more.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs


@attrs.frozen
class Plant:
    """A mistake in one function."""

    place: str
    """The part of the pipeline."""
    what: str
    module: str
    name: str
    """The function, or Class.method."""
    old: str
    new: str

    def apply(self) -> list[tuple[Any, str, Any]]:
        """Puts the mistake in place; what it replaced, as arguments of `setattr`."""
        module = importlib.import_module(self.module)
        owner: Any = module
        *outer, last = self.name.split(".")
        for name in outer:
            owner = getattr(owner, name)
        right = getattr(owner, last)
        owners = (
            [owner] if outer else [each for each in _modules() if vars(each).get(last) is right]
        )
        wrong = self._wrong(right, module)
        for each in owners:
            setattr(each, last, wrong)
        return [(each, last, right) for each in owners]

    def _wrong(self, right: Callable[..., Any], module: Any) -> Any:
        text = textwrap.dedent(inspect.getsource(right))
        if text.count(self.old) != 1:
            raise AssertionError(f"{self.name}: {self.old!r} is there {text.count(self.old)} times")
        text = "from __future__ import annotations\n" + text.replace(self.old, self.new)
        scope: dict[str, Any] = {}
        exec(compile(text, "<plant>", "exec"), vars(module), scope)
        return scope[right.__name__]


def _modules() -> list[Any]:
    """aotlite's modules, of which several may have imported one function by name."""
    return [each for name, each in list(sys.modules.items()) if name.startswith("aotlite")]


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """The mistake is in place for a while."""
    replaced = plant.apply()
    try:
        yield
    finally:
        for owner, name, right in replaced:
            setattr(owner, name, right)


PLANTS: dict[str, Plant] = {
    "stale view": Plant(
        "functionalize",
        "a view that was read before shows what it showed then",
        "aotlite.stages.s6_functionalize.alias_values",
        "AliasValues.sync",
        "if alias.value is None or alias.seen != group.version:",
        "if alias.value is None:",
    ),
    "lost scatter": Plant(
        "functionalize",
        "of several pending writes only the last is put back",
        "aotlite.stages.s6_functionalize.alias_values",
        "AliasValues.fold",
        "in group.pending:",
        "in group.pending[-1:]:",
    ),
    "fresh view": Plant(
        "analyze",
        "two results that are views of one intermediate are called new memory",
        "aotlite.stages.s2_analyze.outputs",
        "OutputAnalysis._kind",
        "len(self.sharing[sight.root]) > 1",
        "len(self.sharing[sight.root]) > 2",
    ),
    "base offset": Plant(
        "convention",
        "a synthetic base begins where its first member begins",
        "aotlite.stages.s3_convention.synthetic_bases",
        "_base",
        "start - _start(anchor), False",
        "0, False",
    ),
    "overlap": Plant(
        "overlap",
        "windows of which one begins where the other ends are called apart",
        "aotlite.ir.geometry.overlap",
        "_meet",
        "offset_a + reach_a < offset_b or offset_b + reach_b < offset_a",
        "offset_a + reach_a <= offset_b or offset_b + reach_b <= offset_a",
    ),
    "no write back": Plant(
        "run time",
        "a 0-d input that was written keeps its value",
        "aotlite.stages.s10_runtime.forward.writer",
        "EntryWriter._write_data",
        "value = self._value_of(role)\n",
        "value = self._value_of(role)\n    if not value.meta.shape: return\n",
    ),
    "version": Plant(
        "run time",
        "several writes of an input count as one",
        "aotlite.stages.s10_runtime.forward.writer",
        "EntryWriter._write_inputs",
        "+= {each.version_bumps}",
        "+= 1",
    ),
    "view replay": Plant(
        "run time",
        "a view that is a result is rebuilt from the start of its storage",
        "aotlite.stages.s10_runtime.support",
        "plain_view",
        "source.offset + how.start",
        "how.start",
    ),
    "stale save": Plant(
        "partition",
        "instead of a copy that is saved, what it is a copy of is saved, which may be written",
        "aotlite.stages.s8_partition.graph_cut",
        "_forward",
        "values.append(node)",
        "values.append(node.args[0] if node.target is CLONE else node)",
    ),
    "dead write": Plant(
        "simplify",
        "a write is dropped where a later one has a window of the same shape",
        "aotlite.stages.s7_simplify.dead_scatters",
        "_dead",
        "(write.window.meta, write.window.start + shift) in seen",
        "write.window.meta in [meta for meta, _ in seen]",
    ),
    "history": Plant(
        "autograd",
        "a write through a view does not become the history of its base",
        "aotlite.stages.s2_analyze",
        "_families",
        "is_written(root.node, family.entry)",
        "False",
    ),
}
