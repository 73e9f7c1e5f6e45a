"""`aot_function`, `aot_module`, `aot_module_simplified`, as PyTorch has them; `freeze`, and `load`.

Each takes one compiler per graph (`aotlite.compilers` has some). Entries are guarded as those of
`compile`: a new shape compiles again. Spec: `specs/s9_lower.md`. Rules: BOX-1, LOW-5 to LOW-8.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from aotlite.api import CompiledFunction
from aotlite.artifacts.bundle import MAX_BYTES, load_bundle
from aotlite.eager.base.tensor import Tensor
from aotlite.freezing import FrozenFunction, frozen_function
from aotlite.ir.errors import ArgumentError, noted
from aotlite.nn.module import Module
from aotlite.nn.swap import call_on_state
from aotlite.pipeline.options import make_options, switch
from aotlite.stages.records.guards.snapshots import PLAIN

__all__ = ["aot_function", "aot_module", "aot_module_simplified", "freeze", "load"]


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: object,
    bw_compiler: object = None,
    partition_fn: object = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: object = None,
    *,
    static_argnums: Sequence[int] | int | None = None,
    **options: Any,
) -> CompiledFunction | StaticFunction:
    """Compiles `fn` with one compiler for each graph.

    A compiler is a function of a graph, or of a graph and its example inputs, that returns a
    function of arrays (boxed if it has `_boxed_call`) or a graph; or it is a Backend. `bw_compiler`
    and `inference_compiler` default to `fw_compiler`, `partition_fn` to the default partitioner.
    Compilers see the first `num_params_buffers` flat arguments as static. Arguments at the
    positions `static_argnums` are constants: any hashable values but tensors, and `fn` is compiled
    again for each combination. Other options are those of `compile`.

    >>> import aotlite as al
    >>> def counting(graph, example_inputs):
    ...     print(graph.name, "has", len(graph.calls), "ops and", len(example_inputs), "inputs")
    ...     return al.compilers.nop(graph, example_inputs)
    >>> f = al.aot_function(lambda x: x.sin().sum(), counting)
    >>> f(al.zeros(2).requires_grad_()).backward()
    <lambda>_forward has 2 ops and 1 inputs
    <lambda>_backward has 4 ops and 2 inputs
    """
    settings = make_options(
        fw_compiler=fw_compiler,
        bw_compiler=fw_compiler if bw_compiler is None else bw_compiler,
        inference_compiler=inference_compiler,
        partition=partition_fn,
        decompositions=decompositions,
        num_params_buffers=num_params_buffers,
        keep_inference_input_mutations=keep_inference_input_mutations,
        **options,
    )
    if static_argnums is None:
        return CompiledFunction(fn, settings)
    positions = _positions(static_argnums)
    return StaticFunction(fn, positions, lambda bound: CompiledFunction(bound, settings))


def freeze(
    fn: Callable[..., object],
    *args: object,
    kwargs: Mapping[str, object] | None = None,
    freezing_discard_parameters: bool = False,
    **options: Any,
) -> FrozenFunction:
    """`functools.partial(fn, *args, **kwargs)`, compiled: ops on fixed tensors alone run once.

    Of Modules, `fn` itself or fixed arguments, the parameters and buffers are fixed. A change of a
    fixed tensor is noticed at the next call, which runs the ops that depend on it again. Raises
    FreezeError at a call in grad mode where a fixed tensor requires grad; other arguments are
    differentiable. `freezing_discard_parameters` erases them in the modules at the first call.
    Options are those of `compile`.

    >>> import aotlite as al
    >>> frozen = al.freeze(lambda w, x: x * w.exp(), al.zeros(2))
    >>> frozen(al.ones(2)).tolist(), frozen.refolded
    ([1.0, 1.0], 1)
    >>> frozen(al.full((2,), 3.0)).tolist(), frozen.refolded
    ([3.0, 3.0], 0)
    """
    discards = freezing_discard_parameters
    made: FrozenFunction = frozen_function(
        CompiledFunction, fn, args, kwargs, freezing_discard_parameters=discards, **options
    )
    return made


# ------------------------------------------------------------------------------ static arguments
_SHOWN = ("source", "forward_graph", "backward_graph", "partition", "meta")


class StaticFunction:
    """A function with static arguments: `variants` has one `CompiledFunction` for each
    combination of their values.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        positions: tuple[int, ...],
        compiled: Callable[[Callable[..., Any]], CompiledFunction],
    ) -> None:
        self.limit = compiled(function).limit  # refuses what is no function
        self.function = function
        self.positions = positions
        self.variants: dict[Any, CompiledFunction] = {}
        self._compiled = compiled
        if hasattr(function, "__name__"):
            functools.update_wrapper(self, function)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        for position in self.positions:
            if position >= len(args):
                raise ArgumentError(
                    f"aot_function: argument {position} is static and missing among {len(args)} "
                    "positional arguments, expected it to be given by position"
                )
        constants = tuple([args[position] for position in self.positions])
        variant = self._variant(constants)
        if variant is None:
            return self.function(*args, **kwargs)
        rest = [value for i, value in enumerate(args) if i not in self.positions]
        return variant(*rest, **kwargs)

    def _variant(self, constants: tuple[object, ...]) -> CompiledFunction | None:
        """The variant for these constants; None at the recompile limit (GRD-4)."""
        key = tuple([_key(value, i) for value, i in zip(constants, self.positions, strict=True)])
        found = self.variants.get(key)
        if found is None:
            if len(self.variants) >= self.limit.most:
                self._reached(constants)
                return None
            made = self._compiled(_bound(self.function, self.positions, constants))
            made.limit = self.limit  # one warning for all variants
            found = self.variants.setdefault(key, made)
        return found

    def _reached(self, constants: tuple[object, ...]) -> None:
        """Warns or raises at the recompile limit: constants may differ at every call."""
        if self.limit.is_silent(len(self.variants)):
            return
        given = zip(self.positions, constants, strict=True)
        failing = ", ".join([f"argument {i} is {value!r:.200}" for i, value in given])
        reasons = [f"variant {i}: {key}" for i, key in enumerate(self.variants)][-8:]
        what = f"aot_function: there are {len(self.variants)} variants by static arguments"
        self.limit.reached(what, reasons, f"Static {failing}, which none of them was made for")

    @property
    def newest(self) -> CompiledFunction:
        """The variant that was made last. Raises ArgumentError before the first call."""
        if not self.variants:
            raise ArgumentError("aot_function: there is no variant yet, expected a call first")
        return next(reversed(self.variants.values()))

    @property
    def entries(self) -> list[Any]:
        """The entries of all variants."""
        return [entry for variant in self.variants.values() for entry in variant.entries]

    def __getattr__(self, name: str) -> Any:
        """`source`, `forward_graph`, `meta`, ...: those of the newest variant."""
        if name not in _SHOWN:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.newest, name)

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"<compiled {name}: {len(self.variants)} variants by static arguments>"


def _positions(given: Sequence[int] | int) -> tuple[int, ...]:
    positions = (given,) if isinstance(given, int) else tuple(given)
    if any(type(p) is not int or p < 0 for p in positions) or len(set(positions)) < len(positions):
        raise ArgumentError(
            f"aot_function: static_argnums is {given!r}, expected different positions from 0 on"
        )
    return tuple(sorted(positions))


def _key(value: object, position: int) -> object:
    """The key of a constant: its type and value, so that 1, 1.0 and True differ."""
    where = f"aot_function: argument {position} is static and is"
    if isinstance(value, (Tensor, Module)):
        raise noted(
            ArgumentError(f"{where} a {type(value).__name__}, expected a constant"),
            "Tensors and Modules are arguments like any other: leave it out of static_argnums.",
        )
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(
            f"{where} {value!r}, which has no hash, expected a hashable constant"
        ) from None
    if type(value) is tuple:
        return tuple([_key(item, position) for item in value])
    # The bits of a number: 0.0 and -0.0 are two, and a nan is itself.
    return type(value), repr(value) if type(value) in PLAIN else value


def _bound(
    function: Callable[..., object], positions: tuple[int, ...], constants: tuple[object, ...]
) -> Callable[..., object]:
    """`function` with its static arguments bound."""

    def bound(*args: object, **kwargs: object) -> Any:
        full = list(args)
        for position, value in zip(positions, constants, strict=True):
            full.insert(position, value)
        return function(*full, **kwargs)

    bound.__name__ = getattr(function, "__name__", "function")
    with suppress(TypeError, ValueError):  # some C functions have none
        named = inspect.signature(function).parameters.values()
        rest = [each for i, each in enumerate(named) if i not in positions]
        bound.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]
    return bound


# --------------------------------------------------------------------------------------- modules
State = OrderedDict[str, Tensor]
"""Tensors by name in the module's order: optree would sort the keys of a plain dict."""


class AOTModule(Module):
    """A Module that runs `orig_module` compiled."""

    def __init__(self, module: Module, compiled: Callable[..., Any]) -> None:
        self.orig_module = module
        self._compiled = compiled

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the compiled module."""
        module = self.orig_module
        return self._compiled(module, *_state(module), *args, **kwargs)


def aot_module(mod: Module, *args: object, **kwargs: object) -> AOTModule:
    """A Module that runs `mod` compiled by `aot_function` with these further arguments.

    Parameters and buffers are the first inputs of the graphs, and static.

    >>> import aotlite as al
    >>> def shown(graph, inputs):
    ...     print(*[f"{each.role} static={each.static}" for each in inputs])
    ...     return al.compilers.nop(graph, inputs)
    >>> layer = al.aot_module(al.nn.Linear(2, 1), shown)
    >>> layer(al.ones(3, 2)).shape
    primals_1 static=True primals_2 static=True primals_3 static=False
    (3, 1)
    """
    return AOTModule(mod, _functional(mod, "aot_module", *args, **kwargs))


def aot_module_simplified(
    mod: Module,
    args: Sequence[object],
    fw_compiler: object,
    bw_compiler: object = None,
    partition_fn: object = None,
    decompositions: Mapping[object, Callable[..., object]] | None = None,
    keep_inference_input_mutations: bool = False,
    inference_compiler: object = None,
    **options: object,
) -> Callable[..., Any]:
    """Compiles `mod` now for arguments like `args`; returns a function of these arguments.

    It has the module's `named_parameters`, `named_buffers` and `zero_grad`, as in PyTorch. Nothing
    runs, and the backward is compiled when it first runs. Other arguments compile again.
    """
    if not isinstance(args, (list, tuple)):
        raise ArgumentError(
            f"aot_module_simplified: args is {args!r}, expected a list of the module's arguments"
        )
    compiled = _functional(
        mod,
        "aot_module_simplified",
        fw_compiler,
        bw_compiler,
        partition_fn,
        decompositions,
        keep_inference_input_mutations=keep_inference_input_mutations,
        inference_compiler=inference_compiler,
        **options,
    )
    compiled.prepare(mod, *_state(mod), *args)

    def forward(*runtime_args: Any) -> Any:
        return compiled(mod, *_state(mod), *runtime_args)

    for name in ("named_parameters", "named_buffers", "zero_grad"):
        setattr(forward, name, getattr(mod, name))
    return forward


def _functional(mod: Module, face: str, *args: Any, **kwargs: Any) -> CompiledFunction:
    """A compiled function of the module, its parameters, its buffers, and its arguments.

    The module is an argument, so that attributes read from it have an access path, and are guarded.
    """
    if not isinstance(mod, Module):
        raise ArgumentError(f"{face}: argument 'mod' is {mod!r}, expected a Module")
    if "num_params_buffers" in kwargs or "static_argnums" in kwargs:
        raise ArgumentError(
            f"{face}: num_params_buffers or static_argnums is given, expected neither: arguments "
            "begin with the module's own"
        )

    def functional(
        module: Module, parameters: State, buffers: State, *args: object, **kwargs: object
    ) -> Any:
        return call_on_state(module, {**parameters, **buffers}, args, kwargs)

    functional.__name__ = type(mod).__name__
    functional.__signature__ = _signature(mod)  # type: ignore[attr-defined]
    if isinstance(kwargs.get("dynamic_shapes"), (list, tuple)):  # the arguments of the module
        kwargs["dynamic_shapes"] = (None, None, None, *kwargs["dynamic_shapes"])
    kwargs["num_params_buffers"] = 1 + sum(map(len, _state(mod)))
    compiled = aot_function(functional, *args, **kwargs)
    assert isinstance(compiled, CompiledFunction)
    return compiled


def _signature(mod: Module) -> inspect.Signature:
    """That of the module's `forward`, after the module and its tensors."""
    own = [
        inspect.Parameter(f"_{name}_of_the_module", inspect.Parameter.POSITIONAL_ONLY)
        for name in ("self", "parameters", "buffers")
    ]
    return inspect.Signature([*own, *inspect.signature(mod.forward).parameters.values()])


def _state(mod: Module) -> tuple[State, State]:
    """The current parameters and buffers by name, in order."""
    return State(mod.named_parameters()), State(mod.named_buffers())


def load(
    path: str | os.PathLike[str],
    function: Callable[..., Any] | None = None,
    *,
    compiles: bool = True,
    max_bytes: int = MAX_BYTES,
) -> CompiledFunction:
    """The compiled function whose entries `save` wrote to a file: calls compile nothing.

    An entry serves a call if all that it read is as it was, as in the artifact cache. `function` is
    the one that was compiled, or a Module: other calls are compiled, or with `compiles=False` raise
    GuardError. Without it only entries are loaded that reach no tensor outside the arguments, and
    what the function read outside them counts as it was saved.

    Raises FormatError for another file, a damaged one, and one of other versions; ArgumentError if
    the function is needed. Nothing of a file is run, and nothing is written; `max_bytes` limits it.

    >>> import os, tempfile
    >>> import aotlite as al
    >>> double = al.compile(lambda x: x * 2, artifact_cache=True, backend="reference")
    >>> _ = double(al.ones(3))
    >>> path = os.path.join(tempfile.mkdtemp(), "double.bundle")
    >>> double.save(path)
    >>> al.load(path)(al.ones(3)).tolist()
    [2.0, 2.0, 2.0]
    """
    found, options, bundle = load_bundle(path, function, switch("compiles", compiles), max_bytes)
    compiled = CompiledFunction(found, options)
    compiled.bundle = bundle
    return compiled
