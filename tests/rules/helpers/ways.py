"""One program run in four ways: here and in PyTorch, eager and compiled.

A test states what the first three show, and what PyTorch's compiled function shows instead: that
PyTorch differs is a claim like any other, and is tested where PyTorch is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

import aotlite as al


class _Same:
    """The mark of "as everywhere else"."""

    def __repr__(self) -> str:
        return "the same"


SAME: Any = _Same()


@attrs.frozen
class Way:
    """A library, and whether functions are compiled in it."""

    lib: Any
    compiles: bool

    @property
    def is_ours(self) -> bool:
        return self.lib is al

    def compiled(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """The function as it is called in this way. PyTorch keeps writes of inputs in the graph."""
        if not self.compiles:
            return function
        if self.is_ours:
            return al.compile(function, **options)
        from torch._functorch.aot_autograd import aot_function
        from torch._functorch.compilers import nop

        return aot_function(function, nop, keep_inference_input_mutations=True, **options)

    def copying(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` compiled by a backend that gives each result memory of its own."""
        if not self.compiles:
            return function
        if self.is_ours:
            return al.aot_function(function, _copying(al.compilers.nop, lambda a: a.copy()))
        from torch._functorch.aot_autograd import aot_function, make_boxed_func

        def run(graph: Any, inputs: Any) -> Any:
            return make_boxed_func(graph.forward)

        def copy(value: Any) -> Any:
            return value.clone() if hasattr(value, "clone") else value

        return aot_function(function, _copying(run, copy))

    def shows(self, got: Any, here: Any, *, pytorch: Any = SAME, eager: Any = SAME) -> None:
        """Holds if `got` is `here`; in compiled PyTorch `pytorch`, in its eager mode `eager`."""
        expected = here
        if not self.is_ours:
            other = pytorch if self.compiles else eager
            if other is not SAME:
                assert here != other, "PyTorch is said to differ, and does not"
                expected = other
        assert expected == got, f"{got}, expected {expected}"

    def outcome(self, function: Callable[[], Any]) -> Any:
        """The result of a function, or "raises" and the builtin class of its error."""
        try:
            return function()
        except Exception as error:
            builtin = [kind for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            return f"raises {builtin[0].__name__}"

    # --- functions of different names
    def leaf(self, numbers: Any) -> Any:
        """A leaf that requires grad, with these numbers in float64."""
        return self.tensor(numbers).requires_grad_()

    def tensor(self, numbers: Any) -> Any:
        return self.lib.tensor(numbers, dtype=self.lib.float64)

    def arange(self, *shape: int, start: float = 0.0) -> Any:
        """The numbers from `start` on, in float64."""
        count = 1
        for size in shape:
            count *= size
        return self.lib.arange(start, start + count, dtype=self.lib.float64).view(shape)

    def version(self, x: Any) -> int:
        return x.version if self.is_ours else x._version

    def base(self, x: Any) -> Any:
        return x.base if self.is_ours else x._base

    def hidden(self, x: Any) -> Any:
        """An alias with a version counter of its own."""
        return x.hidden_alias() if self.is_ours else x.data

    def node(self, x: Any) -> str | None:
        """The name of a tensor's tape node, without PyTorch's number."""
        return None if x.grad_fn is None else x.grad_fn.name().rstrip("0123456789")


def _copying(compiler: Callable[..., Any], copy: Callable[[Any], Any]) -> Callable[..., Any]:
    """A compiler whose functions give copies of what those of another one give."""

    def compile_graph(graph: Any, inputs: Any) -> Any:
        run = compiler(graph, inputs)

        def copied(arrays: list[Any]) -> list[Any]:
            return [copy(result) for result in run(arrays)]

        copied._boxed_call = True  # type: ignore[attr-defined]
        return copied

    return compile_graph
