"""Numbers in place of symbols: equal to what the numbers give, and one object stays one object."""

from __future__ import annotations

from typing import Any

import aotlite as al
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, PartStep, ViewStep
from aotlite.ir.graph.role import Output, Primal
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.symbols.table import SymbolTable
from aotlite.stages.records.backward.gradient_reads import GradientReads, SavedOf
from aotlite.stages.shared.size_values import AtSizes


def chains(x: al.Tensor) -> Any:
    one, _ = x.split(2)
    return one, one[1:], x.t()[1]


def records(dynamic: bool) -> tuple[Any, SymbolTable | None]:
    compiled = al.compile(chains, dynamic=dynamic, backend="reference")
    compiled(al.zeros(4, 6))
    entry = compiled.entries[0]
    guarded: Any = entry.guarded
    return entry, None if not dynamic else guarded.sizes.table


def test_records_at_their_hints_are_those_of_numbers() -> None:
    symbolic, table = records(dynamic=True)
    concrete, _ = records(dynamic=False)
    assert table is not None
    at = AtSizes(table.hints)
    assert concrete.meta.differences(at.put(symbolic.meta)) == []
    assert at.put(symbolic.partition).forward.code == concrete.partition.forward.code


def test_what_has_no_symbol_stays_the_same_object() -> None:
    concrete, _ = records(dynamic=False)
    at = AtSizes({"s0": 3})
    for value in (concrete.meta, (1, (2, "a")), {"a": [1.5]}, Primal(0), frozenset([Output(1)])):
        assert at.put(value) is value


def test_chains_of_one_beginning_share_it_afterwards() -> None:
    symbolic, _ = records(dynamic=True)
    at = AtSizes({"s0": 6, "s1": 4})
    first, second = (at.put(each.view.chain) for each in symbolic.meta.outputs[:2])
    assert second.before is first
    assert at.put(symbolic.meta.outputs[0].view.chain) is first


def test_results_of_one_call_share_its_record() -> None:
    table = SymbolTable()
    meta = symbolic_meta(table, tensor_meta((4, 6)), "x")
    entry, _ = records(dynamic=True)
    step: ViewStep = entry.meta.outputs[0].view.chain[0]
    assert type(step) is PartStep
    other = PartStep(step.op, step.args, meta, meta, step.parts, 1)
    at = AtSizes({"s0": 8, "s1": 3})
    both = [at.put(EMPTY_CHAIN.then(each))[0] for each in (step, other)]
    assert both[0].parts is both[1].parts


def test_tensors_that_become_equal_are_merged() -> None:
    table = SymbolTable()
    metas: list[TensorMeta] = [symbolic_meta(table, tensor_meta((n,)), "x") for n in (4, 5)]
    saved = {SavedOf(Primal(0), meta): 1 << k for k, meta in enumerate(metas)}
    reads = GradientReads((Output(0), Output(1)), saved)
    assert dict(AtSizes({"s0": 7, "s1": 7}).put(reads).saved) == {
        SavedOf(Primal(0), tensor_meta((7,))): 3
    }
    assert len(AtSizes({"s0": 7, "s1": 8}).put(reads).saved) == 2
