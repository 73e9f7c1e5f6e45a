"""`Options`: every setting of a compilation, frozen and checked; and environment variables.

AOTLITE_VERIFY=0|1|2 (off; every graph is verified; every graph also runs) and AOTLITE_DUMP=folder
(one file per stage) are the defaults of `verify` and `dump`. AOTLITE_LOG is obeyed when options are
made. The fourth variable, AOTLITE_CACHE, is read by the backends. Everything else is an argument.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from aotlite.backends.lookup import backend_from
from aotlite.backends.protocol import Backend
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph
from aotlite.pipeline.logs.log_options import read_environment
from aotlite.stages import NAMES as STAGES
from aotlite.stages.s7_simplify.decompositions import Table, decomposition_table

Pass = Callable[[Graph], Graph]
Partitioner = Callable[[Graph], Any]
Observer = Callable[[str, Any], None]

PARTITIONERS = ("default", "min_cut")
"""The names of partitioners; the pipeline has their functions."""

DEFAULT_BACKEND = "auto"
"""The backend if none is given."""


@attrs.frozen
class Options:
    """The settings of one compiled function; `make_options` checks them."""

    backend: Backend
    partition: Partitioner | str | None = None
    """'default', 'min_cut', or a function; None: min-cut for a backend that fuses, else stage 8."""
    verify: int = 1
    passes: tuple[Pass, ...] = ()
    decompositions: Table = attrs.field(factory=dict)
    """Decompositions by op, applied after functionalization."""
    stages: Mapping[str, Callable[..., Any]] = attrs.field(factory=dict)
    dump: str | None = None
    observer: Observer | None = None
    fw_compiler: Backend | None = None
    bw_compiler: Backend | None = None
    inference_compiler: Backend | None = None
    """The backend of functions without backward; None: `fw_compiler`."""
    recompile_limit: int = 32
    """The largest number of entries of a function (GRD-4)."""
    recompile_limit_is_error: bool = False
    """At the limit a call raises; otherwise it runs eagerly."""
    dynamic: bool | None = None
    """Which sizes of arguments are symbols: those that were seen to change (None), none of those
    not asked for (False), or all (DYN-3)."""
    instance_limit: int = 256
    """The largest number of vectors of sizes of which an entry keeps its instance (DYN-42)."""
    dynamic_shapes: object = None
    """Named dimensions of arguments, in containers like those of the arguments."""
    fast_paths: bool = True
    """False: calls take the general paths, which are slower and otherwise equal."""
    num_params_buffers: int = 0
    """The first so many flat arguments are the same memory at every call: they are static."""
    keep_inference_input_mutations: bool | None = None
    """Graphs without backward write their inputs themselves (FUN-21); None: if the backend fuses,
    since it then reads and writes each input once."""
    unlift_tokens: bool = True
    """Graphs for backends make and sink their tokens; False: they take and return them (TOK-3)."""
    saved_hooks: tuple[Callable[..., object], Callable[..., object]] | None = None
    """(pack, unpack) functions for saved values, traced into the graphs (SAV-7)."""
    saved_hooks_mode: str = "donated"
    """Which saved values are packed: 'donated', 'no_static' or 'all'."""
    enable_log: bool = True
    """False: loggers and traces hear nothing of the function's compilations and calls (LOG-2)."""
    artifact_cache: bool = False
    """Entries are kept on disk, and found again by later processes (CACHE-1)."""
    strict_cache: bool = False
    """An entry that cannot be kept is an error with the reason (CACHE-3)."""

    def forward_backend(self, *, training: bool) -> Backend:
        """The backend of a forward, or of a function without backward."""
        chosen = None if training else self.inference_compiler
        return chosen or self.fw_compiler or self.backend

    def backward_backend(self) -> Backend:
        """The backend of a backward."""
        return self.bw_compiler or self.backend

    def keeps_writes(self) -> bool:
        """Whether graphs without backward write their inputs themselves."""
        kept = self.keep_inference_input_mutations
        return _fuses(self.forward_backend(training=False)) if kept is None else kept

    def cuts_for_fusion(self) -> bool:
        """Whether min-cut partitions the joint graph, since the backend fuses and no partitioner
        was chosen: recomputing a cheap value costs less than saving it.
        """
        is_open = self.partition is None and "partition" not in self.stages
        return is_open and _fuses(self.backward_backend())


def _fuses(backend: Backend) -> bool:
    return bool(getattr(backend, "fuses", False))


def make_options(
    *,
    backend: object = None,
    wait: bool = True,
    verify: bool | int | None = None,
    dump: str | None = None,
    device_graphs: bool = False,
    device_graph_sizes: object = None,
    **given: Any,
) -> Options:
    """Checks the arguments of `compile`; the environment has the defaults of some."""
    for name in given:
        if name not in _CHECKS:
            raise _unknown(name)
    read_environment()
    chosen = _waiting(DEFAULT_BACKEND if backend is None else backend, wait)
    return Options(
        backend=_recording(chosen, device_graphs, device_graph_sizes),
        verify=_level(verify),
        dump=_folder(dump) or os.environ.get("AOTLITE_DUMP") or None,
        **{name: _CHECKS[name](value) for name, value in given.items()},
    )


_REPLACED = {
    "is_export": "aotlite.export.aot_export_module(module, args)",
    "pre_dispatch": "aotlite.export.aot_export_module(module, args, pre_dispatch=True)",
    "no_tangents": "aotlite.export.aot_export_module(module, args, trace_joint=True, "
    "output_loss_index=...), whose graph has the tangent of the loss inside",
    "aot_id": "the number that each compilation gets: entry.number, in logs and dumps, too",
    "fullgraph": "nothing: a function is always one graph, or an error says why not",
    "mode": "backend=, partition= and device_graphs=",
    "static_input_indices": "num_params_buffers=",
}
"""Options of PyTorch's compilers that have another name here, with what replaces them."""


def _unknown(name: str) -> ArgumentError:
    if name in _REPLACED:
        return ArgumentError(f"compile: {name!r} is no option, expected {_REPLACED[name]}")
    backend, *others = [field.name for field in attrs.fields(Options)]
    more = ["device_graphs", "device_graph_sizes", "freezing", "freezing_discard_parameters"]
    known = [backend, "wait", *others, *more]
    near = difflib.get_close_matches(name, known, 3, cutoff=0.7) or known
    if name == "freezing_discard_parameters":
        return ArgumentError(f"compile: {name} is given without freezing, expected freezing=True")
    return ArgumentError(f"compile: {name!r} is no option, expected {', '.join(near)}")


def _waiting(given: object, wait: object) -> Backend:
    """The backend; with `wait=False` one that compiles in the background."""
    backend = backend_from(given)
    if switch("wait", wait):
        return backend
    without = getattr(backend, "without_waiting", None)
    if without is None:
        raise ArgumentError(
            f"compile: wait is False for backend {backend.name!r}, expected one that compiles in "
            "the background: 'auto' or 'cpu'"
        )
    impatient: Backend = without()
    return impatient


def _recording(backend: Backend, device_graphs: object, sizes: object) -> Backend:
    """The backend; with `device_graphs=True` one that records CUDA graphs (CUG-1, CUG-3)."""
    if not switch("device_graphs", device_graphs):
        if sizes is not None:
            raise ArgumentError(
                f"compile: device_graph_sizes is {sizes!r} and device_graphs is False, expected "
                "True with sizes"
            )
        return backend
    of = getattr(backend, "with_device_graphs", None)
    if of is None:
        raise ArgumentError(
            f"compile: device_graphs is True for backend {backend.name!r}, expected 'auto' or "
            "'cuda'"
        )
    recording: Backend = of(None if sizes is None else _sizes(sizes))
    return recording


def _sizes(sizes: object) -> frozenset[int]:
    if not isinstance(sizes, (list, tuple, set, frozenset)) or any(
        type(size) is not int or size < 0 for size in sizes
    ):
        raise ArgumentError(
            f"compile: device_graph_sizes is {sizes!r}, expected a list of sizes, such as [1, 2, 4]"
        )
    return frozenset(sizes)


def _compiler(option: str, given: object) -> Backend | None:
    return None if given is None else backend_from(given, option)


def _count(number: object) -> int:
    if type(number) is not int or number < 0:
        raise ArgumentError(
            f"compile: num_params_buffers is {number!r}, expected a number of arguments"
        )
    return number


def _limit(name: str, of: str, number: object) -> int:
    if type(number) is not int or number < 1:
        raise ArgumentError(f"compile: {name} is {number!r}, expected a number of {of}, at least 1")
    return number


def switch(name: str, value: object) -> bool:
    """The value of a switch. Raises ArgumentError if it is neither True nor False."""
    if type(value) is not bool:
        raise ArgumentError(f"compile: {name} is {value!r}, expected True or False")
    return value


def _dynamic(value: object) -> bool | None:
    if value is not None and type(value) is not bool:
        raise ArgumentError(f"compile: dynamic is {value!r}, expected None, True or False")
    return value


def _dynamic_shapes(shapes: object) -> object:
    if shapes is not None and not isinstance(shapes, (Mapping, list, tuple)):
        raise ArgumentError(
            f"compile: dynamic_shapes is {shapes!r}, expected a dict by the names of "
            "parameters, or a tuple in their order"
        )
    return shapes


def _kept(value: object) -> bool | None:
    return None if value is None else switch("keep_inference_input_mutations", value)


def _saved_hooks(hooks: Any) -> object:
    pair = isinstance(hooks, (tuple, list)) and len(hooks) == 2 and all(map(callable, hooks))
    if hooks is not None and not pair:
        raise ArgumentError(
            f"compile: saved_hooks is {hooks!r}, expected two functions: to pack and to unpack"
        )
    return None if hooks is None else tuple(hooks)


def _saved_hooks_mode(mode: object) -> str:
    modes = ("donated", "no_static", "all")
    if mode not in modes:
        raise ArgumentError(f"compile: saved_hooks_mode is {mode!r}, expected {', '.join(modes)}")
    return str(mode)


def verify_level(text: str) -> int:
    """The level that a value of AOTLITE_VERIFY stands for. Raises ArgumentError."""
    if text not in ("0", "1", "2"):
        raise ArgumentError(f"compile: AOTLITE_VERIFY is {text!r}, expected 0, 1 or 2")
    return int(text)


def _level(verify: bool | int | None) -> int:
    if verify is None:
        return verify_level(os.environ.get("AOTLITE_VERIFY", "1"))
    if verify is True:
        return 2
    if verify not in (0, 1, 2):
        raise ArgumentError(f"compile: verify is {verify!r}, expected True, False, 0, 1 or 2")
    return int(verify)


def _folder(dump: object) -> str | None:
    if dump is not None and not isinstance(dump, (str, os.PathLike)):
        raise ArgumentError(f"compile: dump is {dump!r}, expected the path of a folder")
    return os.fspath(dump) if dump else None


def _observer(observer: object) -> Observer | None:
    if observer is not None and not callable(observer):
        raise ArgumentError(f"compile: observer is {observer!r}, expected a function")
    found: Observer | None = observer
    return found


def _decompositions(decompositions: object) -> Table:
    return {} if decompositions is None else decomposition_table(decompositions)


def _partition(partition: Any) -> Partitioner | str | None:
    is_named = isinstance(partition, str) and partition in PARTITIONERS
    if partition is None or is_named or callable(partition):
        found: Partitioner | str | None = partition
        return found
    raise ArgumentError(
        f"compile: partition is {partition!r}, expected 'default', 'min_cut' or a function"
    )


def _passes(passes: object) -> tuple[Pass, ...]:
    if not isinstance(passes, (list, tuple)):
        raise ArgumentError(f"compile: passes is {passes!r}, expected a list of functions")
    found = tuple(passes)
    for each in found:
        if not callable(each):
            raise ArgumentError(
                f"compile: a pass is {each!r}, expected a function from graph to graph"
            )
    return found


def _stages(stages: object) -> Mapping[str, Callable[..., object]]:
    stages = stages or {}
    if not isinstance(stages, Mapping):
        raise ArgumentError(f"compile: stages is {stages!r}, expected functions by stage name")
    for name, stage in stages.items():
        if name not in STAGES:
            raise ArgumentError(
                f"compile: stages has {name!r}, expected names among {', '.join(STAGES)}"
            )
        if not callable(stage):
            raise ArgumentError(f"compile: stage {name!r} is {stage!r}, expected a function")
    return dict(stages)


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "partition": _partition,
    "passes": _passes,
    "decompositions": _decompositions,
    "stages": _stages,
    "observer": _observer,
    "fw_compiler": partial(_compiler, "fw_compiler"),
    "bw_compiler": partial(_compiler, "bw_compiler"),
    "inference_compiler": partial(_compiler, "inference_compiler"),
    "recompile_limit": partial(_limit, "recompile_limit", "entries"),
    "instance_limit": partial(_limit, "instance_limit", "vectors of sizes"),
    "recompile_limit_is_error": partial(switch, "recompile_limit_is_error"),
    "dynamic": _dynamic,
    "dynamic_shapes": _dynamic_shapes,
    "fast_paths": partial(switch, "fast_paths"),
    "num_params_buffers": _count,
    "keep_inference_input_mutations": _kept,
    "unlift_tokens": partial(switch, "unlift_tokens"),
    "saved_hooks": _saved_hooks,
    "saved_hooks_mode": _saved_hooks_mode,
    "enable_log": partial(switch, "enable_log"),
    "artifact_cache": partial(switch, "artifact_cache"),
    "strict_cache": partial(switch, "strict_cache"),
}
"""For each option the function that checks and converts its argument."""
