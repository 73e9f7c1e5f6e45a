"""What nothing needs removed: stores, reductions, steps and buffers; the rest numbered anew.

Input: any program; output: the same results with fewer steps. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from aotlite.backends.loops.expr import Scalar, load, name, walk
from aotlite.backends.loops.program import (
    Check,
    Extern,
    Gemm,
    Kernel,
    Kind,
    Placed,
    Program,
    Reduce,
    Scan,
    Statement,
    Step,
    Store,
    names_of,
    reads,
    values_of,
    writes,
)
from aotlite.backends.loops.rewrite import on_statement, replaced, unchanged


def without_dead(program: Program) -> Program:
    """The program with nothing that neither its results nor its inputs depend on."""
    needed = {placed.buffer for placed in program.outputs if placed is not None}
    needed |= {b.number for b in program.buffers if b.kind is Kind.INPUT}
    kept: list[Step] = []
    for step in reversed(program.steps):
        alive = writes(step) & needed
        if alive or type(step) is Check:
            step = _needed(step, alive)
            kept.append(step)
            needed |= reads(step)
    kept.reverse()
    return _renumbered(attrs.evolve(program, steps=tuple(kept)))


def _needed(step: Step, alive: set[int]) -> Step:
    """The step without what it does for nobody; an extern's results are marked so."""
    match step:
        case Kernel():
            return attrs.evolve(step, body=_needed_body(step.body, alive))
        case Extern():
            results = [p if p is not None and p.buffer in alive else None for p in step.results]
            return attrs.evolve(step, results=tuple(results))
    return step


def _needed_body(body: tuple[Statement, ...], alive: set[int]) -> tuple[Statement, ...]:
    kept: list[Statement] = []
    names: set[int] = set()
    for statement in reversed(body):
        if type(statement) is Store:
            is_needed = statement.buffer in alive
        else:
            is_needed = not names.isdisjoint(names_of(statement))
        if is_needed:
            kept.append(statement)
            names |= {v.args[0] for v in walk(values_of(statement)) if v.op == "name"}
    return tuple(reversed(kept))


# ---------------------------------------------------------------------------------------- numbers
def _renumbered(program: Program) -> Program:
    """Buffers and names counted from 0 in order."""
    used = {number for number in program.inputs if number is not None}
    used |= {placed.buffer for placed in program.outputs if placed is not None}
    for step in program.steps:
        used |= reads(step) | writes(step)
    buffers = [b for b in program.buffers if b.number in used]
    numbers = {buffer.number: k for k, buffer in enumerate(buffers)}
    return attrs.evolve(
        program,
        buffers=tuple([attrs.evolve(b, number=numbers[b.number]) for b in buffers]),
        steps=tuple([with_buffers(step, numbers) for step in program.steps]),
        inputs=tuple([n if n is None else numbers[n] for n in program.inputs]),
        outputs=tuple([_placed(placed, numbers) for placed in program.outputs]),
    )


def with_buffers(step: Step, numbers: Mapping[int, int]) -> Step:
    """The step with its buffers, and a kernel's names, numbered anew."""
    if type(step) is Kernel:
        return _numbered(step, numbers)
    if type(step) is Gemm:
        a, b, c = [attrs.evolve(w, buffer=numbers[w.buffer]) for w in (step.a, step.b, step.c)]
        return attrs.evolve(step, a=a, b=b, c=c)
    if type(step) is Check:
        return Check(numbers[step.buffer])
    assert type(step) is Extern
    args = tuple([_argument(value, numbers) for value in step.args])
    results = tuple([_placed(placed, numbers) for placed in step.results])
    return attrs.evolve(step, args=args, results=results)


def _argument(value: object, numbers: Mapping[int, int]) -> object:
    if type(value) is Placed:
        return _placed(value, numbers)
    if type(value) is tuple:
        return tuple([_argument(item, numbers) for item in value])
    return value


def _placed(placed: Placed | None, numbers: Mapping[int, int]) -> Placed | None:
    return None if placed is None else attrs.evolve(placed, buffer=numbers[placed.buffer])


def _numbered(kernel: Kernel, numbers: Mapping[int, int]) -> Kernel:
    memo: dict[Scalar, Scalar] = {}
    names: dict[int, int] = {}
    body: list[Statement] = []

    def scalar(root: Scalar) -> Scalar:
        for value in walk([root]):
            if value.op == "load" and value not in memo:
                buffer, address = value.args
                dynamic = tuple([(replaced(v, memo), step) for v, step in address.dynamic])
                address = attrs.evolve(address, dynamic=dynamic) if dynamic else address
                memo[value] = load(numbers[buffer], address, value.dtype)
        return replaced(root, memo)

    for statement in kernel.body:
        changed = on_statement(statement, scalar, unchanged)
        for k, value in zip(names_of(changed), values_of(changed), strict=False):
            names[k] = len(names)
            memo[name(k, value.dtype)] = name(names[k], value.dtype)
        body.append(_relabelled(changed, names, numbers))
    return attrs.evolve(kernel, body=tuple(body))


def _relabelled(
    statement: Statement, names: Mapping[int, int], numbers: Mapping[int, int]
) -> Statement:
    match statement:
        case Store(buffer=buffer):
            return attrs.evolve(statement, buffer=numbers[buffer])
        case Reduce() | Scan():
            return attrs.evolve(statement, names=tuple([names[k] for k in statement.names]))
    return attrs.evolve(statement, name=names[statement.name])
