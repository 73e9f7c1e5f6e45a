"""One measurement of the pipeline benchmark, in a process of its own.

`python -m benchmarks.first_call JOB` with a job as JSON prints one JSON object: seconds of the
first call with the first backward, by the clock and of the processor, and how much the peak of
resident memory grew, in bytes. A failure is printed as `{"failed": "..."}`.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import attrs
import numpy as np

from benchmarks.programs import Jax, Program, TorchLike, program


@attrs.frozen
class Job:
    """A measurement: the front end of a library on a program."""

    row: str
    peer: str
    partition: str = "default"
    verify: int = 0
    """The level of verification, for aotlite alone."""


Phase = Callable[[Program], tuple[Callable[[], Any], Callable[[Any], Any]]]
"""Program -> its first call, and the function that continues with its result."""


def measure(job: Job) -> dict[str, float]:
    """Seconds and bytes of the first call, after a warm-up with a function of three ops."""
    call, backward = prepared(job, program(job.row))
    gc.collect()
    peak = _peak()
    seconds, cpu_seconds = _run(call, backward)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "bytes": _peak() - peak}


def prepared(job: Job, of: Program) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """The first call of a program and its backward, after the warm-up."""
    prepare = _PEERS[job.peer](job)
    _run(*prepare(_warm_up()))
    return prepare(of)


def _run(call: Callable[[], Any], backward: Callable[[Any], Any]) -> tuple[float, float]:
    start, cpu_start = time.perf_counter(), time.process_time()
    backward(call())
    return time.perf_counter() - start, time.process_time() - cpu_start


def _peak() -> int:
    """The peak of resident memory, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _warm_up() -> Program:
    def body(lib: Any, x: Any) -> Any:
        return lib.sum(lib.mul(lib.sin(x), 2.0))

    return Program("warm-up", body, ((4,),), (True,))


def _values(of: Program) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.uniform(0.1, 0.2, shape).astype(np.float32) for shape in of.shapes]


# ---------------------------------------------------------------------------------------- the peers
def _aotlite(job: Job) -> Phase:
    import aotlite as al

    if job.partition == "min_cut":
        import_module("networkx")  # imported for non-trivial cuts; imports do not count
    lib = TorchLike(import_module("aotlite.nn.functional"))

    def prepare(of: Program) -> Any:
        compiled = al.compile(
            lambda *xs: of.body(lib, *xs),
            backend=no_kernels,
            partition=job.partition,
            verify=job.verify,
        )
        args = [al.from_numpy(value).clone() for value in _values(of)]
        for arg, wanted in zip(args, of.with_grad, strict=True):
            arg.requires_grad_(wanted)
        return lambda: compiled(*args), lambda result: result.backward()

    return prepare


def no_kernels(graph: Any) -> Callable[..., list[Any]]:
    """A backend without kernels: it returns zeros in the shapes of the graph's results."""
    metas = [getattr(value, "meta", None) for value in graph.outputs]
    return lambda *_: [None if m is None else np.zeros(m.shape, m.dtype.numpy) for m in metas]


def _torch(job: Job) -> Phase:
    torch, functorch = import_module("torch"), import_module("functorch.compile")
    torch.set_num_threads(1)
    lib = TorchLike(torch.nn.functional)
    partitions = {
        "default": functorch.default_partition,
        "min_cut": functorch.min_cut_rematerialization_partition,
    }

    def no_kernels(module: Any, _: Any) -> Any:
        (output,) = module.graph.find_nodes(op="output")
        shown = [getattr(value, "meta", {}).get("val") for value in output.args[0]]
        zeros = [None if v is None else torch.zeros(v.shape, dtype=v.dtype) for v in shown]
        return functorch.make_boxed_func(lambda *_: zeros)

    def prepare(of: Program) -> Any:
        compiled = functorch.aot_function(
            lambda *xs: of.body(lib, *xs),
            fw_compiler=no_kernels,
            bw_compiler=no_kernels,
            partition_fn=partitions[job.partition],
        )
        args = [torch.from_numpy(value).clone() for value in _values(of)]
        for arg, wanted in zip(args, of.with_grad, strict=True):
            arg.requires_grad_(wanted)
        return lambda: compiled(*args), lambda result: result.backward()

    return prepare


def _jax(job: Job) -> Phase:
    """Value and gradients are traced and lowered together: there is no second phase."""
    jax = import_module("jax")
    lib = Jax()

    def prepare(of: Program) -> Any:
        wanted = tuple(index for index, grad in enumerate(of.with_grad) if grad)
        function = jax.value_and_grad(lambda *xs: of.body(lib, *xs), argnums=wanted)
        args = [jax.numpy.asarray(value) for value in _values(of)]
        return lambda: jax.jit(function).lower(*args), lambda _: None

    return prepare


_PEERS: dict[str, Callable[[Job], Phase]] = {"aotlite": _aotlite, "torch": _torch, "jax": _jax}


def main() -> None:
    """Prints the measurement of the job in the first argument."""
    try:
        found: dict[str, Any] = dict(measure(Job(**json.loads(sys.argv[1]))))
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        found = {"failed": f"{type(error).__name__}: {text}"}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
