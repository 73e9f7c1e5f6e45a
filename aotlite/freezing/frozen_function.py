"""`FrozenFunction`: a function with fixed arguments, whose values are folded.

It is `functools.partial` of the function, compiled: the same results, gradients and side effects.
The fixed tensors are arguments of the compiled function like any other, so that a call is never
wrong about them; a `FoldingBackend` computes what depends on them alone once, and again where their
content has changed. Rules: FRZ-1 to FRZ-8. Spec: `specs/freezing.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import attrs
import numpy as np

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.eager.tracked_objects import own_attributes
from aotlite.freezing.erased_tensors import (
    erased,
    given_leaf,
    stand_in,
    stand_in_storage,
    words_of,
)
from aotlite.freezing.fold_graph import marked
from aotlite.freezing.folding_backend import FoldingBackend
from aotlite.freezing.frozen_arguments import FrozenArguments, Structure
from aotlite.freezing.frozen_content import value_of_leaf
from aotlite.freezing.frozen_tensors import FrozenTensors, leave
from aotlite.freezing.report import FreezeReport, report_of
from aotlite.ir.errors import ArgumentError, FreezeError, UnsupportedError, noted
from aotlite.ir.forks import lock
from aotlite.ir.graph import Graph
from aotlite.pipeline.options import Options, make_options, switch
from aotlite.stages.records.guards.access_words import FRAME, in_words, name_of
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s2_analyze import analyze
from aotlite.stages.s7_simplify import simplify

Compile = Callable[[Callable[..., Any], Options], Any]
"""`CompiledFunction`, which is above this package."""


_DISCARDING = lock()
"""Held while a first call discards: others wait, and find what it has erased."""


@attrs.define(eq=False, repr=False)
class _Variant:
    """What is compiled for one structure of the leading arguments."""

    structure: Structure
    frozen: FrozenTensors
    compiled: Any


class FrozenFunction:
    """A callable that fixes arguments of a function and folds what depends on them alone."""

    def __init__(
        self,
        compile: Compile,
        options: Options,
        function: Callable[..., Any],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        discards: bool = False,
    ) -> None:
        if not callable(function):
            raise ArgumentError(f"freeze: argument 'fn' is {function!r}, expected a function")
        if options.num_params_buffers:
            raise ArgumentError(
                f"freeze: num_params_buffers is {options.num_params_buffers}, expected 0: the "
                "frozen tensors are counted"
            )
        self.function = function
        self.options = options
        self._compile = compile
        self._arguments = FrozenArguments(function, args, kwargs or {})
        self.__wrapped__ = self._arguments.wrapped()
        self.__dict__[FRAME] = {}
        self._discards = discards
        self._variant: _Variant | None = None
        self._variants: list[_Variant] = []
        self._has_discarded = False

    # --- calls
    def __call__(self, *args: object, **kwargs: object) -> Any:
        arguments = self._arguments
        if STATE.recorder is not None:  # part of another capture
            fixed = {**arguments.kwargs, **kwargs}
            return self.function(*arguments.args, *args, **fixed)
        is_first = self._discards and not self._has_discarded and self._discard(args, kwargs)
        variant, leaves = self._current()
        frozen = variant.frozen
        if not is_first:
            frozen.counts.last = 0
        before = frozen.enter(leaves)
        try:
            if self._discards:
                frozen.check_memory()
            return variant.compiled(*leaves, *args, **kwargs)
        except ArgumentError as error:
            self._reword(error, variant)
            raise
        finally:
            leave(before)

    def prepare(self, *args: object, **kwargs: object) -> None:
        """Compiles for arguments like these without running or folding."""
        self._prepared(args, kwargs)

    def _prepared(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[_Variant, list[Any]]:
        variant, leaves = self._current()
        before = variant.frozen.enter(leaves)
        try:
            variant.compiled.prepare(*leaves, *args, **kwargs)
        except ArgumentError as error:
            self._reword(error, variant)
            raise
        finally:
            leave(before)
        return variant, leaves

    def _reword(self, error: ArgumentError, variant: _Variant) -> None:
        """Puts the user's number of an argument into the error of one that no function takes."""
        text = str(error.args[0]) if error.args else ""
        if text.startswith("compile: argument "):
            error.args = (in_words(variant.compiled.function, text), *error.args[1:])

    def _current(self) -> tuple[_Variant, list[Any]]:
        """The variant for the leading arguments as they are, and these."""
        found, structure = self._arguments.read()
        leaves = [given_leaf(leaf, self._arguments) for leaf in found] if self._discards else found
        variant = self._variant
        if variant is None or variant.structure is not structure:
            variant = self._of(structure, leaves)
        self._check_untracked(variant.frozen, leaves)
        return variant, leaves

    def _of(self, structure: Structure, leaves: list[Any]) -> _Variant:
        for each in self._variants:
            if each.structure == structure:
                each.structure = structure
                self._variant = each
                return each
        words = self._arguments.words(structure)
        kinds = (Tensor, np.ndarray)
        numbers = [i for i, leaf in enumerate(leaves) if isinstance(leaf, kinds)]
        is_silent = not self.options.enable_log
        frozen = FrozenTensors(words, numbers, discards=self._discards, is_silent=is_silent)
        frozen.discarded += [n for n in numbers if stand_in_storage(leaves[n]) is not None]
        for number in [n for n in numbers if is_wrapper(leaves[n])]:
            frozen.reasons[number] = "it is a wrapper subclass, whose parts are not followed"
        options = _folding(self.options, frozen, len(leaves))
        made = _Variant(structure, frozen, self._compile(self._arguments.bound(structure), options))
        self._variants.append(made)
        self._variant = made
        return made

    def _check_untracked(self, frozen: FrozenTensors, leaves: list[Any]) -> None:
        """Raises FreezeError if a call would have to differentiate a frozen tensor (FRZ-8)."""
        if not STATE.grad_mode:
            return
        for number in frozen.numbers:
            leaf = leaves[number]
            if isinstance(leaf, Tensor) and leaf.requires_grad_outside():
                raise noted(
                    FreezeError(
                        f"freeze: {frozen.places[number]} requires grad in grad mode, expected "
                        "frozen tensors that do not"
                    ),
                    "Gradients of frozen tensors are not computed: call it under no_grad(), or set "
                    "requires_grad_(False) on what you freeze; other arguments stay "
                    "differentiable. (FRZ-8)",
                )

    # --- discarding
    def _discard(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
        """Folds for the first call, and erases what is folded in the modules; False if another
        thread has done it.

        Each tensor is erased as soon as nothing reads it any more, so that the memory at any time
        is at most the original and the largest folded tensor, where a folded tensor is no larger
        than what it is made of (FRZ-4).
        """
        with _DISCARDING:
            if self._has_discarded:
                return False
            variant, leaves = self._prepared(args, kwargs)
            variant.frozen.counts.last = 0
            self._erase(variant, leaves)
            self._has_discarded = True
        return True

    def _erase(self, variant: _Variant, leaves: list[Any]) -> None:
        frozen, places = variant.frozen, variant.structure.places
        erase = self._eraser(variant, leaves)
        waiting = {n: 0 for n in range(len(places)) if n not in frozen.reasons}
        for fold in frozen.folds:
            for number in fold.numbers:
                waiting[number] = waiting.get(number, 0) + 1

        def done(number: int) -> None:
            waiting[number] -= 1
            if not waiting[number] and number < len(places):
                erase(number)

        for number in [n for n, count in waiting.items() if not count]:
            erase(number)
        for fold in frozen.folds:
            fold.discard(leaves, done)

    def _eraser(self, variant: _Variant, leaves: list[Any]) -> Callable[[int], None]:
        """What erases the tensor with a number: all places of one tensor get one erased tensor."""
        frozen, places = variant.frozen, variant.structure.places
        kept = {id(leaves[n]) for fold in frozen.folds for n in fold.read_as_is}
        first = {id(leaves[n]): places[n] for n in reversed(range(len(places)))}
        made: dict[int, tuple[Any, Any]] = {}

        def erase(number: int) -> None:
            place, tensor = places[number], leaves[number]
            if stand_in_storage(tensor) is not None:
                return  # by a first call that has failed
            if id(tensor) not in made:
                digest = frozen.digest(number, leaves)
                standing = stand_in(
                    tensor, digest, value_of_leaf(tensor) if id(tensor) in kept else None
                )
                of = words_of(tensor, first[id(tensor)])
                made[id(tensor)] = erased(tensor, of, standing, self._arguments), standing
            own_attributes(place.owner)[place.name], leaves[number] = made[id(tensor)]
            frozen.discarded.append(number)

        return erase

    # --- leaving
    def to_python(
        self,
        path: str | None = None,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> str:
        """The function with its fixed arguments, as a file of NumPy: `CompiledFunction.to_python`
        of the partial. Fixed tensors are its state, and what depends on them is computed at each
        call of the file. Raises FreezeError where tensors that it reads are discarded."""
        alone = self._compile(self.__wrapped__, self.options)
        return str(alone.to_python(path, args, kwargs, **options))

    def save(self, path: object, **options: object) -> NoReturn:
        """Raises UnsupportedError: no file has the entries of a frozen function (FRZ-7)."""
        raise noted(
            UnsupportedError(
                f"save: {name_of(self)} is frozen, expected a function of `compile`: entries of "
                "frozen functions are not kept on disk"
            ),
            "Save the program, aotlite.export.program(frozen, *args).save(path), or freeze what "
            "`aotlite.load` gives.",
        )

    # --- looking
    @property
    def compiled(self) -> Any:
        """The compiled function, of the frozen tensors and the other arguments. Raises
        ArgumentError before the first call."""
        return self._known.compiled

    @property
    def _known(self) -> _Variant:
        if self._variant is None:
            raise ArgumentError("freeze: nothing is compiled yet, expected a call first")
        return self._variant

    @property
    def fold_graphs(self) -> list[Graph]:
        """The fold graphs, one for each compiled graph with something to fold."""
        return [each.fold.graph for each in self._known.frozen.folds]

    @property
    def rest_graphs(self) -> list[Graph]:
        """For each fold graph what runs at each call."""
        return [each.fold.rest for each in self._known.frozen.folds]

    @property
    def refolded(self) -> int:
        """The number of ops that the newest call has folded again: those of the cones of what has
        changed. Values that another function holds are taken over (FRZ-7)."""
        return self._known.frozen.counts.last

    def report(self) -> FreezeReport:
        """What is folded, what is not and why, and how often it was refolded."""
        return report_of(self._known.frozen)

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else partial(self, instance)

    def __repr__(self) -> str:
        return f"<frozen {name_of(self)}: {len(self._variants)} variants>"


def frozen_function(
    compile: Compile,
    function: Callable[..., Any],
    args: tuple[object, ...] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    freezing: bool = True,
    freezing_discard_parameters: bool = False,
    **options: Any,
) -> Any:
    """The frozen function of these options; with `freezing=False` what `compile` makes."""
    discards = switch("freezing_discard_parameters", freezing_discard_parameters)
    made = make_options(**options)
    if not switch("freezing", freezing):
        return compile(function, made)
    return FrozenFunction(compile, made, function, args, kwargs, discards=discards)


def _folding(options: Options, frozen: FrozenTensors, count: int) -> Options:
    """The options with backends that fold, for a function with so many leading arguments."""

    def folding(backend: Any) -> Any:
        return None if backend is None else FoldingBackend(backend, frozen)

    def analyzed(*args: Any, **kwargs: Any) -> FunctionMeta:
        found: FunctionMeta = options.stages.get("analyze", analyze)(*args, **kwargs)
        frozen.note(found)
        return found

    def simplified(graph: Graph) -> Graph:
        return marked(options.stages.get("simplify", simplify)(graph), frozen.foldable())

    return attrs.evolve(
        options,
        backend=folding(options.backend),
        fw_compiler=folding(options.fw_compiler),
        inference_compiler=folding(options.inference_compiler),
        stages={**options.stages, "analyze": analyzed, "simplify": simplified},
        num_params_buffers=count,
    )
