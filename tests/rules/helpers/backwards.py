"""Programs whose backwards run users' Python on memory that outlives the forward, as plain data.

A program is a chain or a row of calls of one custom function, each bound to a memory: an input, or
what the forward makes. `story` runs it and says all that can be observed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs

import aotlite as al
from aotlite.partition import min_cut_rematerialization_partition

REFUSED = "and another part of the backward fails, expected one that does not"
"""The one refusal: of several results some have a backward that raises for what it has written."""


@attrs.frozen
class Step:
    """One call of the custom function."""

    memory: int
    write: str | None
    """How its backward writes the memory."""
    reads: str | None
    """The way in which its backward reads the memory."""
    materialize: bool = True
    hook: bool = False
    """A hook on its result writes the memory, too."""


@attrs.frozen
class Forward:
    """The actions around the calls."""

    chained: bool = False
    writes: int | None = None
    """The memory that the forward writes."""
    before: bool = False
    """It does so before the calls."""
    returns: str = "none"
    """The result on the memory that the forward makes."""


@attrs.frozen
class Program:
    steps: tuple[Step, ...]
    forward: Forward = Forward()
    between: int | None = None
    """The input that the caller writes between the call and the backward."""
    arriving: tuple[int, ...] = (0,)
    """The results that the loss is made of."""
    again: bool = False
    """The backward runs twice."""
    partition: bool = False
    """The min-cut partition, which computes what it can in the forward."""


class Own(al.autograd.Function):
    """Doubles its argument; its backward does to a memory what a step says."""

    @staticmethod
    def forward(ctx: Any, x: Any, memory: Any, step: Step) -> Any:
        ctx.step = step
        ctx.memory = memory[:] if step.reads == "view" else memory
        ctx.set_materialize_grads(step.materialize)
        if step.reads == "saved":
            ctx.save_for_backward(memory)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        step, memory = ctx.step, ctx.memory
        factor = 1.0
        if step.reads == "saved":
            (saved,) = ctx.saved_tensors
            factor = saved + 1
        elif step.reads is not None:
            factor = memory * 2 + 1
        found = grad * factor
        write(step.write, memory, grad)
        return found, None, None


def write(how: str | None, memory: Any, grad: Any) -> None:
    match how:
        case "add":
            memory.add_(1)
        case "mul":
            memory.mul_(3)
        case "copy_grad":
            memory.copy_(grad)
        case "zero":
            memory.zero_()
        case "add_row":
            memory[0].add_(grad[1])
        case "add_to_view":
            memory.view(4).t()[1:3].add_(2)
        case "add_current":
            memory.add_(memory.flip(0) * grad)


def function(program: Program) -> Any:
    """The program as a function of a leaf and two buffers."""
    steps, around = program.steps, program.forward

    def f(x: Any, a: Any, b: Any) -> Any:
        made = x.detach() * 5
        memories = [a, b, made]
        if around.writes is not None and around.before:
            memories[around.writes].mul_(2)
        results: list[Any] = []
        for step in steps:
            source = results[-1] if around.chained and results else x
            out = Own.apply(source, memories[step.memory], step)
            if step.hook:
                out.register_hook(partial(_add_seven, memories[step.memory]))
            results.append(out)
        if around.writes is not None and not around.before:
            memories[around.writes].mul_(2)
        own = {"none": (), "memory": (made,), "view": (made[1:], made.view(2, 2))}
        return (*results, *own[around.returns])

    return f


def _add_seven(memory: Any, grad: Any) -> None:
    memory.add_(7)


def story(program: Program, *, compiled: bool) -> list[Any]:
    """The observation of the program, and the class of the error that ends it."""
    f = function(program)
    if compiled:
        more = {"partition": min_cut_rematerialization_partition} if program.partition else {}
        f = al.compile(f, **more)
    x = al.arange(4.0).requires_grad_()
    buffers = [al.arange(4.0) + 1, al.arange(4.0) - 2]
    seen: list[Any] = []
    try:
        results = f(x, *buffers)
        count = len(program.steps)
        shown = [*buffers, *results]
        seen.append([_state(each) for each in shown])
        if program.between is not None:
            buffers[program.between].add_(0.5)
        loss = sum((k + 1) * results[k].sum() for k in program.arriving)
        for retain in (True, False)[: 1 + program.again]:
            loss.backward(retain_graph=retain or not program.again)
            seen.append([_state(each) for each in (*buffers, *results[count:])])
            seen.append(_state(x.grad))
    except al.AotliteError as error:
        known = str(error).endswith(REFUSED)
        seen.append(REFUSED if known else type(error).__name__)
    return seen


def _state(tensor: Any) -> Any:
    return tensor.tolist(), tensor._version, tensor.requires_grad
