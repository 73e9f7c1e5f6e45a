"""The trials that child processes of `aotlite doctor` run: each backend against eager.

`probes` starts the children. Only they import this module, since its imports may crash.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import aotlite as al
from aotlite.backends.native.compiler import failure_reports, probe, toolchain
from aotlite.ir.errors import BackendError


def try_reference(_: float) -> None:
    """Raises if the results of the reference backend differ from eager's."""
    check("reference")


def try_loops(_: float) -> None:
    """Raises if the results of `loops` differ from eager's."""
    check("loops")


def try_cpu(limit: float) -> None:
    """Raises if the results of `cpu` differ from eager's. Prints "ok" and its compiler, or "absent"
    and why there is none."""
    probe.PROBE_LIMIT = limit
    compiler = toolchain.find_compiler()
    if compiler is None:
        problem = toolchain.compiler_problem() or ""
        print("absent", problem.removesuffix(f"; {toolchain.INSTALL}"))
        return
    try:
        check("cpu")
    except BackendError as error:
        failure_reports.forget(error)
        raise SystemExit(str(error)) from error  # and not its notes
    print("ok", compiler)


def try_cuda(_: float) -> None:
    """Raises if the results of `cuda` on the device differ from eager's."""
    check("cuda", device="cuda")


def check(
    backend: str, compile: Callable[..., Any] | None = None, device: str | None = None
) -> None:
    """Raises if a compiled function differs from eager in its value, gradient or writes."""
    compile = compile or partial(al.compile, backend=backend)

    def function(x: Any, w: object) -> Any:
        x[0].mul_(2.0)
        hidden = (x @ w).relu()
        return (hidden * hidden).sum()

    def run(form: Callable[..., Any]) -> list[Any]:
        x = al.arange(12.0, device=device).reshape(4, 3)
        w = al.ones(3, 2, device=device).requires_grad_()
        value = form(x, w)
        value.backward()
        gradients: Any = w.grad
        return [value.tolist(), gradients.tolist(), x.tolist()]

    expected, found = run(function), run(compile(function))
    for what, one, other in zip(("value", "gradient", "input"), expected, found, strict=True):
        if one != other:
            raise SystemExit(f"the compiled {what} is {other}, expected {one} as in eager mode")
