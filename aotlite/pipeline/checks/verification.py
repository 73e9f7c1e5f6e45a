"""`verify=True`: runs the graph of every stage on random inputs, compares it with the stage before.

The first graph whose results differ names the wrong stage or pass. Graphs run on the reference
interpreter, op by op. Stages must agree exactly, the user's passes up to rounding: the tolerance is
measured by runs with random rounding errors. Rules: VER-9 to VER-15. Spec: `specs/verify.md`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import ml_dtypes
import numpy as np

from aotlite.ir.arrays import copied, host_array
from aotlite.ir.dtypes import DType
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.forks import cached_property
from aotlite.ir.graph import Graph, Phase, output_node
from aotlite.ir.graph.role import (
    RNG_INPUTS,
    RNG_OUTPUTS,
    BackwardOffset,
    BackwardSeed,
    BackwardToken,
    Gradient,
    IntermediateBase,
    MutatedInput,
    Offset,
    Rewritten,
    Role,
    Saved,
    Seed,
    Token,
)
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import InplaceOp, PureOp, RandomOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.run.interpreter import ArrayValue, Interpreter, array_value, call_arrays
from aotlite.pipeline.checks.dry_run_effects import Happened, Muted
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.metadata.function_facts import Plain
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.synthetic_base import BaseInput
from aotlite.stages.s3_convention.synthetic_bases import with_bases
from aotlite.stages.shared.gradient_sinks import first_form
from aotlite.stages.shared.memory.extents import extent_node
from aotlite.stages.shared.size_values import AtSizes

SEED, OFFSET = 20240607, 8
"""The state of the random number generator at the start of every run (VER-13)."""

TRIALS = 8
"""Runs with rounding errors that measure the tolerance of a pass.

So many that a comparison such as `x > y`, where rounding decides it, comes out both ways.
"""


# ----------------------------------------------------------------------------------------- inputs
@attrs.frozen
class Draw:
    """A distribution of inputs. `floats(generator, size)` returns finite numbers (VER-10)."""

    stream: int
    """A part of the seed; two draws with one stream get the same random signs."""
    floats: Callable[[np.random.Generator, int], np.ndarray]
    integers: tuple[int, int]
    """The smallest and the largest integer."""
    exact: bool = False
    """Sums and products of a few of these are exact in float32."""


def _dyadic(generator: np.random.Generator, size: int) -> np.ndarray:
    """Seven values, so that there are ties; each occurs as soon as there are seven elements."""
    values = np.array([0, 1, -1, 2, -2, 0.5, -0.5])
    places = np.arange(size) + generator.integers(len(values))
    return values[generator.permutation(places) % len(values)]


def _moderate(generator: np.random.Generator, size: int) -> np.ndarray:
    return generator.uniform(-3, 3, size)


def _varied(generator: np.random.Generator, size: int) -> np.ndarray:
    return _signs(generator, size) * 10.0 ** generator.uniform(-3, 3, size)


def _tiny(generator: np.random.Generator, size: int) -> np.ndarray:
    """Small beside the constants that are added to avoid a division by 0."""
    return -_signs(generator, size) * generator.uniform(0.25, 1, size) / 1024


def _signs(generator: np.random.Generator, size: int) -> np.ndarray:
    return generator.choice((-1.0, 1.0), size)


DRAWS = (
    Draw(0, _dyadic, (-3, 3), exact=True),
    Draw(1, _moderate, (-9, 9)),
    Draw(2, _varied, (-100, 100)),
    Draw(2, _tiny, (0, 5)),
)
"""The last two have one stream and opposite signs: each element is once positive, once negative."""


_STATES = {Seed: SEED, Offset: OFFSET, BackwardSeed: SEED + 1, BackwardOffset: OFFSET + 8}
_LATER = (Gradient, IntermediateBase, Rewritten, *RNG_OUTPUTS)
"""Classes of outputs that the captured graph does not have."""


class Inputs:
    """The values of one draw, by role: the same for a role in the graphs of all stages.

    Buffers are filled whole, also where strides leave gaps.
    """

    def __init__(self, draw: Draw, integers: tuple[int, int]) -> None:
        self.draw = draw
        self.integers = integers
        self.drawn: dict[Role, np.ndarray] = {}
        self.metas: dict[Role, TensorMeta] = {}
        self.shared: dict[Role, ArrayValue] = {}

    def value(self, role: Role, meta: TensorMeta) -> ArrayValue:
        """A fresh copy of the input with this role."""
        if role not in self.drawn:
            self.drawn[role] = self._draw(role, meta.dtype, meta.span)
            self.metas[role] = meta
        flat = meta.as_contiguous((meta.span,))
        return ArrayValue(copied(meta.device.arrays, self.drawn[role], flat), meta)

    def unwritten(self, role: Role, meta: TensorMeta) -> ArrayValue:
        """The input with this role, shared between runs: for graphs that do not write."""
        value = self.shared.get(role)
        if value is None or value.meta is not meta:
            value = self.shared[role] = self.value(role, meta)
        return value

    def _draw(self, role: Role, dtype: DType, size: int) -> np.ndarray:
        if isinstance(role, RNG_INPUTS):
            return np.full(size, _STATES[type(role)], dtype.numpy)
        generator = np.random.default_rng((zlib.crc32(str(role).encode()), self.draw.stream))
        if not dtype.is_differentiable:
            least, most = (0, 1) if dtype.numpy.kind == "b" else self.integers
            return generator.integers(least, most + 1, size).astype(dtype.numpy)
        value = self.draw.floats(generator, size)
        if dtype.is_complex:
            value = value + 1j * self.draw.floats(generator, size)
        return value.astype(dtype.numpy)


# ------------------------------------------------------------------------------------------- runs
class Drawing(Interpreter):
    """Runs imperative and functional graphs alike; outputs are `ArrayValue`s.

    A random op of an imperative graph draws at SEED and OFFSET, which a functional graph has as
    inputs (VER-13). Effects are logged, not run.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.advance = 0
        self.effects = Muted()

    def call(self, target: Any, args: tuple[Any, ...]) -> Any:
        """The result of an op. A random op advances the position, an effect is logged."""
        if isinstance(target, (EffectOp, TokenOp)):
            return self.effects.call(target, args, self.node.phase)
        if not isinstance(target, RandomOp):
            return super().call(target, args)
        value = call_arrays(target.functional, (SEED, OFFSET, self.advance, *args))
        self.advance += target.consumes(value.meta)
        return value

    def output(self, target: object, args: tuple[object, ...]) -> Any:
        """The values themselves: views stay views of a larger buffer."""
        return args[0]


class Noisy(Drawing):
    """Runs a pure graph with a random relative error of at most one epsilon after each float op."""

    def __init__(self, graph: Graph, *, trial: int, exact_inputs: bool) -> None:
        super().__init__(graph)
        self.generator = np.random.default_rng(trial)
        self.exact_inputs = exact_inputs

    def placeholder(self, target: object, args: tuple[object, ...]) -> Any:
        """An input with an error: one op that sums it has many roundings of its own."""
        value = super().placeholder(target, args)
        coarse = self.exact_inputs and value.meta.dtype.itemsize >= 4
        return value if coarse else self._noisy(value)

    def call(self, target: Any, args: tuple[Any, ...]) -> Any:
        """The result of an op with an error; views compute nothing, and get none."""
        value = super().call(target, args)
        if not isinstance(target, PureOp) or target is GETITEM:
            return value
        return tuple(map(self._noisy, value)) if type(value) is tuple else self._noisy(value)

    def _noisy(self, value: object) -> object:
        if not isinstance(value, ArrayValue) or not value.meta.dtype.is_differentiable:
            return value
        meta = value.meta
        flat = meta.as_contiguous((meta.span,))
        wide = _wide(_host(ArrayValue(value.buffer, flat, value.start)))
        error = self.generator.uniform(-1, 1, wide.shape) * _epsilon(meta.dtype.numpy)
        noisy = (wide * (1 + error)).astype(meta.dtype.numpy)
        return ArrayValue(copied(meta.device.arrays, noisy, flat), meta)


Results = dict[Role, Any]
"""NumPy arrays by the role of the output; outputs that are None are left out."""

Make = Callable[[Graph], Interpreter]
Run = Callable[[Inputs, Make], Results]
"""The graph or partition of a stage, as a function of inputs and an interpreter class."""


def run_graph(graph: Graph, inputs: Inputs, make: Make) -> Results:
    """The results of a graph for these inputs."""
    return _hosts(_outputs(graph, inputs, make, {}))


def run_halves(partition: Partition, inputs: Inputs, make: Make) -> Results:
    """The results of both halves of a partition, one run after the other."""
    found = _outputs(partition.forward, inputs, make, {})
    if partition.backward is not None:
        kept: dict[Role, Any] = {r: v for r, v in found.items() if isinstance(r, Saved)}
        found.update(_outputs(partition.backward, inputs, make, kept))
    return _hosts({role: value for role, value in found.items() if not isinstance(role, Saved)})


def _outputs(
    graph: Graph, inputs: Inputs, make: Make, kept: dict[Role, Any]
) -> dict[Role, ArrayValue]:
    written = any(isinstance(node.target, InplaceOp) for node in graph.nodes)
    read = inputs.value if written else inputs.unwritten
    values = []
    for node in graph.placeholders:
        role: Any = node.role
        meta: Any = node.meta
        given = kept.get(role)
        if given is None:
            values.append(read(role, meta))
        elif given.meta is meta:
            values.append(given)
        else:
            values.append(array_value(given.array, meta))
    run = make(graph)
    pairs = zip(graph.output_roles, run.run(*values), strict=True)
    tokens = (Token, BackwardToken)
    found: dict[Any, Any] = {r: v for r, v in pairs if v is not None and not isinstance(r, tokens)}
    return found | (run.effects.log if isinstance(run, Drawing) else {})


def _hosts(values: Mapping[Role, object]) -> Results:
    return {role: _host(value) for role, value in values.items()}


def _host(value: object) -> np.ndarray:
    """The NumPy array of a value on any device."""
    if not isinstance(value, ArrayValue):
        return np.asarray(value)
    return host_array(value.array)


# ------------------------------------------------------------------------------------- comparison
class StageRunner:
    """Runs the graphs of successive stages on the same inputs, and compares results by role."""

    def __init__(self) -> None:
        self.inputs: list[Inputs] = []
        self.before: list[Results] = []
        self.run: Run = partial(run_graph, Graph((output_node([], []),)))
        self.name = ""
        self.sizes: dict[str, int] = {}
        """The sizes of the call, by the names of their symbols: graphs run with these numbers."""

    def start(
        self, captured: Captured, meta: FunctionMeta, bases: tuple[BaseInput, ...] = ()
    ) -> None:
        """Runs the captured graph, with which the joint graph has to agree (VER-11)."""
        if captured.recorder.sizes is not None:
            self.sizes = captured.recorder.sizes.table.hints
        seen = with_bases(_observable(captured, meta, bases), bases)
        seen = AtSizes(self.sizes).graph(seen) if self.sizes else seen
        self.name, self.run = "1 capture", partial(run_graph, seen)
        for draw in DRAWS:
            self._start(draw)

    def _start(self, draw: Draw) -> None:
        """Finds a range of integers with which the function runs: integers may be indices."""
        for integers in (draw.integers, (0, 1), (0, 0)):
            inputs = Inputs(draw, integers)
            try:
                self.before.append(self.run(inputs, Drawing))
            except Exception:
                continue
            self.inputs.append(inputs)
            return

    def compare(self, stage: str, graph: Graph, *, exact: bool = True) -> None:
        """Raises ArgumentError naming `stage` if its results differ from the stage before."""
        graph = AtSizes(self.sizes).graph(graph) if self.sizes else graph
        self._compare(stage, partial(run_graph, graph), exact=exact)

    def compare_partition(self, partition: Partition) -> None:
        """Compares a partition, whose halves are run one after the other."""
        numbers = AtSizes(self.sizes).put(partition)
        self._compare("8 partition", partial(run_halves, numbers), exact=True)

    def _compare(self, stage: str, run: Run, *, exact: bool) -> None:
        results = [self._run(stage, run, inputs) for inputs in self.inputs]
        for inputs, before, after in zip(self.inputs, self.before, results, strict=True):
            noise = None if exact else Noise(self.run, inputs)
            for role in {**before, **after}:
                value, found = _result(role, before, inputs), _result(role, after, inputs)
                if value is None and self._is_new(role):
                    continue  # the capture has none
                wrong = _difference(role, value, found, noise)
                if wrong is not None:
                    raise self._error(stage, role, inputs, value, found, wrong)
        self.before, self.run, self.name = results, run, stage

    def _is_new(self, role: object) -> bool:
        """Whether a result first exists in the joint graph: the capture has no backward."""
        if isinstance(role, Happened):
            return role.phase is Phase.BACKWARD and self.name == "1 capture"
        return isinstance(role, _LATER)

    def _run(self, stage: str, run: Run, inputs: Inputs) -> Results:
        try:
            return run(inputs, Drawing)
        except Exception as error:
            raise ArgumentError(
                f"verify: the graph of {stage} raises {type(error).__name__} ({error}), expected "
                f"what {self.name} gives"
            ) from error

    def _error(
        self, stage: str, role: Role, inputs: Inputs, before: Any, after: Any, wrong: Any
    ) -> ArgumentError:
        error = ArgumentError(
            f"verify: {stage} changed the value of {role}, expected what {self.name} gives"
        )
        if wrong is not True:
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            error.add_note(f"first at {index}: {before[index]} before, {after[index]} after")
        return noted(
            error,
            f"before: {_shown(before)}",
            f"after:  {_shown(after)}",
            *[
                f"input {role}: {_shown(_host(inputs.unwritten(role, meta)))}"
                for role, meta in inputs.metas.items()
            ],
        )


class Noise:
    """The tolerance for a pass: how far rounding errors move the results of a graph (VER-14)."""

    def __init__(self, run: Run, inputs: Inputs) -> None:
        self.run = run
        self.inputs = inputs

    @cached_property
    def trials(self) -> list[Results]:
        """Results of runs with rounding errors; computed only once some results differ."""
        exact = self.inputs.draw.exact
        return [
            self.run(self.inputs, partial(Noisy, trial=trial, exact_inputs=exact))
            for trial in range(TRIALS)
        ]

    def explains(self, role: Role, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """A mask of elements whose difference rounding explains.

        An integer or bool is explained where rounding errors changed it in some trial.
        """
        if before.dtype.kind == "U":  # the literals of an effect
            return np.zeros(before.shape, bool)
        trials = [_result(role, trial, self.inputs) for trial in self.trials]
        if before.dtype.kind in "biu":
            return np.any([trial != before for trial in trials], axis=0)
        spread = np.max([_distance(before, trial) for trial in trials], axis=0)
        info = ml_dtypes.finfo(before.dtype)
        epsilon = float(info.eps)
        factor = 256 if epsilon < 2**-16 else 8
        floor = epsilon * np.abs(_wide(before)) + float(info.smallest_subnormal)
        limit = np.where(np.isfinite(spread), factor * (spread + floor), np.inf)
        return _distance(before, after) <= limit


def _result(role: Role, results: Results, inputs: Inputs) -> Any:
    """The result with this role; the final value of an input that the graph never writes."""
    if role not in results and isinstance(role, MutatedInput) and role.of in inputs.metas:
        return _host(inputs.unwritten(role.of, inputs.metas[role.of]))
    return results.get(role)


def _difference(
    role: Role, before: np.ndarray | None, after: np.ndarray | None, noise: Noise | None
) -> np.ndarray | bool | None:
    """None if results are equal, True if shape or dtype differs, else a mask of differences."""
    if before is None or after is None:
        return True
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        return True
    wrong = (before != after) & ((before == before) | (after == after))
    if wrong.any() and noise is not None:
        wrong &= ~noise.explains(role, before, after)
    return wrong if wrong.any() else None


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The distances of elements; infinite where one of the two is not finite."""
    with np.errstate(all="ignore"):
        distance = np.abs(_wide(a) - _wide(b))
    return np.where(np.isfinite(distance), distance, np.inf)


def _wide(value: np.ndarray) -> np.ndarray:
    """The same numbers as float64 or complex128, whose differences do not overflow."""
    return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)


def _epsilon(dtype: object) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


def _shown(value: object) -> str:
    if value is None:
        return "absent"
    return np.array2string(np.asarray(value), threshold=8, precision=6).replace("\n", " ")


# ---------------------------------------------------------------------------------------- capture
def _observable(captured: Captured, meta: FunctionMeta, bases: tuple[BaseInput, ...] = ()) -> Graph:
    """The captured graph with the outputs that the joint graph has, to compare the two (VER-11).

    They are the plain results in their first geometry, the intermediate bases, and the final bytes
    of every input. Of the members of a synthetic base, those that are written; of wrappers, the
    inner tensors.
    """
    wrappers = captured.recorder.wrapped.nodes
    nodes = tuple([node for node in captured.graph.nodes[:-1] if node not in wrappers])
    unwritten = {member.role for base in bases for member in base.members}
    unwritten -= {each.role for each in meta.updated}
    inputs = captured.graph.placeholders
    whole = {n: n for n in inputs if type(n.role) not in RNG_INPUTS and n not in wrappers}
    whole |= {
        given.placeholder: extent_node(given.placeholder, captured.reach[given.role])
        for given in captured.inputs
        if given.role in captured.reach
    }
    outputs: list[tuple[Role, Any]] = [
        (MutatedInput(node.role), seen)
        for node, seen in whole.items()
        if node.role not in unwritten
    ]
    nodes += tuple([seen for node, seen in whole.items() if seen is not node])
    for index, result in enumerate(meta.outputs):
        if isinstance(result, Plain):
            value = captured.graph.outputs[index]
            seen = first_form(value) if result.geometry_steps else value
            if seen not in wrappers:
                outputs.append((meta.role_of(index), seen))
    for index, base in enumerate(meta.bases):
        if base.node in nodes:
            outputs.append((IntermediateBase(index), base.node))
    closing = output_node([value for _, value in outputs], [role for role, _ in outputs])
    return Graph((*nodes, closing), captured.graph.name)
