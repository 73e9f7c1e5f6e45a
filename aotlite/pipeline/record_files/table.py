"""The closed tables of a file of records: the classes, enums and errors that it may name.

A name of a file is looked up here and nowhere else. What is in no table cannot be written.
Spec: `specs/record_files.md`, REC-2.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.ir import errors
from aotlite.ir.graph import Phase
from aotlite.pipeline.derivatives import Derivable
from aotlite.pipeline.order_records import OrderRecords
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.stages.records import call_effects, rng_state, synthetic_base, version_counts
from aotlite.stages.records.backward import gradient_reads, joint, partition, required_tangents
from aotlite.stages.records.capture import ArgumentLeaf, Containers, NumpyResult
from aotlite.stages.records.convention import Convention
from aotlite.stages.records.guards import access_paths, float_guards, guard_records
from aotlite.stages.records.metadata import function_facts
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s8_partition.double_backward_saves import Reads
from aotlite.stages.s10_runtime.guards import call_facts
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts
from aotlite.stages.shared.double_backward import EarlierResult

_RECORDS: Final = (
    StageRecords,
    GuardedFacts,
    Derivable,
    OrderRecords,
    EarlierResult,
    call_facts.ComparedCall,
    call_facts.InputFacts,
    call_facts.ViewFamily,
    FunctionMeta,
    Convention,
    Containers,
    ArgumentLeaf,
    joint.Joint,
    joint.BackwardFacts,
    joint.BackwardEffect,
    joint.BackwardMemory,
    joint.ArrivalChoice,
    gradient_reads.GradientReads,
    gradient_reads.SavedOf,
    gradient_reads.WrittenInside,
    partition.Partition,
    partition.SavedValue,
    required_tangents.RequiredArrivals,
    synthetic_base.BaseInput,
    synthetic_base.Member,
    version_counts.CountPlan,
    version_counts.CountStep,
    rng_state.StateAtEntry,
    rng_state.KnownState,
    rng_state.Advanced,
    rng_state.Reseeded,
    rng_state.FinalRngState,
    call_effects.GradWrite,
    call_effects.RegisteredHook,
    function_facts.MemoryStep,
    function_facts.InputMeta,
    function_facts.FamilyMeta,
    function_facts.Plain,
    function_facts.IsInput,
    function_facts.ViewFacts,
    function_facts.AliasOfInput,
    function_facts.AliasOfBase,
    function_facts.AliasOfOutput,
    function_facts.Repeated,
    function_facts.Fixed,
    function_facts.BaseMeta,
    guard_records.HiddenInputGuard,
    guard_records.SameTensorGuard,
    guard_records.ValueGuard,
    guard_records.GradAttributeGuard,
    guard_records.NoHooksGuard,
    guard_records.EnvironmentGuard,
    float_guards.FloatArgumentGuard,
    access_paths.AccessPath,
)
RECORDS: Final[Mapping[str, type[Any]]] = {kind.__name__: kind for kind in _RECORDS}
"""The classes of records by name."""

OMITTED: Final[Mapping[tuple[str, str], str]] = {
    ("Joint", "kept_tape"): "the tape from which derivatives of the backward are recorded",
    ("Joint", "late_inputs"): "the fakes of one compilation",
    ("BaseMeta", "node"): "a node of the captured graph",
    ("StageRecords", "kernels"): "compiled kernels",
    ("StageRecords", "run"): "compiled kernels",
    ("GuardedFacts", "hooks"): "functions that each call registers as hooks",
}
"""(class, field) that no file holds, with the words for what it is. A record at rest has the
default there."""

_ENUMS: Final = (
    NumpyResult,
    CreationKind,
    Phase,
    Reads,
    call_effects.HookPlace,
    function_facts.StateStep,
)
ENUMS: Final[Mapping[str, type[Enum]]] = {kind.__name__: kind for kind in _ENUMS}
"""The enums by name."""

_PYTHON_ERRORS: Final = (
    *(AssertionError, AttributeError, IndexError, KeyError, LookupError, MemoryError, NameError),
    *(NotImplementedError, OverflowError, RuntimeError, TypeError, ValueError, ZeroDivisionError),
)
_OWN_ERRORS: Final = tuple([getattr(errors, x) for x in errors.__all__ if x.endswith("Error")])
ERRORS: Final[Mapping[str, type[Exception]]] = {
    kind.__name__: kind for kind in (*_OWN_ERRORS, *_PYTHON_ERRORS)
}
"""The errors that a backward may raise, by name: those of aotlite and Python."""

_TYPES: Final = (
    *(bool, int, float, complex, str, bytes, type(None), slice, range),
    *(list, tuple, dict, set, frozenset, collections.OrderedDict, collections.deque),
    Tensor,
)
TYPES: Final[Mapping[str, type[Any]]] = {kind.__name__: kind for kind in _TYPES}
"""The types by name, of which guards speak."""
