"""The process that draws and runs programs; `processes.workers` starts it.

It announces each program before it begins it, so that the parent knows which program hangs or kills
it. Orders and answers are pickles on one connection:

    Play(seed and target pairs)   for each: Drawn(text), then the outcome, as Told
    Judge(program, seed, rounds)  Told, perhaps of a fork that may die
    Draw(program)                 the drawing of its alias groups, a text
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import time
import traceback
from functools import partial
from multiprocessing.connection import Connection

import attrs

from aotlite.ir.errors import AotliteError
from aotlite.testing.alias_printer import drawing
from aotlite.testing.engines import engine
from aotlite.testing.fuzzing import oracles
from aotlite.testing.fuzzing.one_program import options_of
from aotlite.testing.fuzzing.oracles import libraries, pytorch
from aotlite.testing.fuzzing.outcomes import Outcome
from aotlite.testing.fuzzing.plan import EAGER, Plan
from aotlite.testing.fuzzing.processes.fork import CAN_FORK, in_fork, watch_parent
from aotlite.testing.fuzzing.user_functions import compiler_of, library_of
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.programs.program import Program

MEMORY = 6 * 2**30
"""The limit of address space of a process that runs programs, in bytes."""
SAMPLE = 40
"""One in `SAMPLE` programs that do not fail runs again, to find nondeterministic ones."""
ROUNDS = 2
"""The number of repeated runs of a program that fails."""


@attrs.frozen
class PlayOrder:
    """The order to draw and run programs: pairs of a seed and a target."""

    programs: tuple[tuple[int, int], ...]


@attrs.frozen
class JudgeOrder:
    """The order to run a program, and `rounds` times more to see whether it is deterministic."""

    program: Program
    seed: int
    rounds: int | None = None
    """The number of further runs; None: none, even if it fails."""
    forked: float | None = None
    """The limit in seconds of a fork of this process that runs it; None: no fork.

    On Windows, where there are no forks, in this process, which the parent ends.
    """


@attrs.frozen
class DrawOrder:
    """The order to draw the alias groups of a program."""

    program: Program


@attrs.frozen
class Drawn:
    """The program that runs next, as JSON, which is six times as fast as a pickle."""

    text: str


@attrs.frozen
class Told:
    """An outcome, and the seconds of processor time that it took."""

    outcome: Outcome
    seconds: float = 0.0


@attrs.frozen
class PlanRefused:
    """The plan cannot be run."""

    error: AotliteError


def main(connection: Connection) -> None:
    """Runs orders until the parent is gone."""
    _contain()
    plan = connection.recv()
    try:
        judge = judge_of(plan)
    except AotliteError as error:
        return connection.send(PlanRefused(error))
    _warm_up()
    connection.send("ready")
    gc.collect()
    gc.freeze()  # objects from the start are not searched in each collection
    while True:
        try:
            order = connection.recv()
        except EOFError:
            return None
        _run(order, plan, judge, connection)


def _contain() -> None:
    _limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    os.dup2(2, 1)
    faulthandler.enable()
    if hasattr(faulthandler, "register"):  # not on Windows
        faulthandler.register(signal.SIGUSR1, all_threads=False)
    watch_parent()


def _limit() -> None:
    """Limits memory and forbids core dumps, on systems that can."""
    try:
        import resource
    except ImportError:  # on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _warm_up() -> None:
    """Runs a program for its imports, which would else count as time of other programs."""
    program = draw(0)
    for options in ({}, {"verify": 2}):
        oracles.Compiled(engine("aotlite")).outcome(program, options)


def judge_of(plan: Plan) -> oracles.Judge:
    """Returns the oracle of a plan."""
    compile = None if plan.function is None else compiler_of(plan.function)
    if "torch" in (plan.engine, plan.against):
        if plan.against == EAGER:
            return pytorch.compiled(compile)
        if (plan.engine, plan.against) == ("aotlite", "torch"):
            return pytorch.across()
    if plan.against != EAGER:
        kind = libraries.AgainstMemory if plan.against == "numpy" else libraries.Across
        return kind(library_of(plan.engine), library_of(plan.against))
    library = library_of(plan.engine)
    return oracles.Compiled(library) if compile is None else oracles.Compiled(library, compile)


# ----------------------------------------------------------------------------------- the orders
def _run(order: object, plan: Plan, judge: oracles.Judge, connection: Connection) -> None:
    match order:
        case PlayOrder(programs):
            for seed, target in programs:
                _play(seed, target, (plan, judge, connection))
            gc.collect()
        case JudgeOrder(program, seed, rounds, limit):
            action = partial(judged, judge, program, _options(plan, seed), rounds)
            is_forked = limit is not None and CAN_FORK
            connection.send(Told(in_fork(action, limit or 0.0) if is_forked else action()))
        case DrawOrder(program):
            connection.send(_picture(plan, program))


def _play(seed: int, target: int, with_: tuple[Plan, oracles.Judge, Connection]) -> None:
    plan, judge, connection = with_
    start = time.process_time()
    try:
        program = draw(seed, target)
    except Exception as error:
        return connection.send(Told(_raised(error, "while the program was drawn")))
    connection.send(Drawn(program.to_json()))
    found = judged(judge, program, _options(plan, seed), int(seed % SAMPLE == SAMPLE - 1))
    return connection.send(Told(found, time.process_time() - start))


def _options(plan: Plan, seed: int) -> dict[str, object]:
    fixed = plan.fixed_options()
    return options_of(seed) if fixed is None else fixed


def judged(
    judge: oracles.Judge, program: Program, options: dict[str, object], rounds: int | None
) -> Outcome:
    """Returns the outcome of a program; an error of the judge is a kind of outcome."""
    try:
        found = judge.outcome(program, options)
        if rounds is None:
            return found
        rounds = max(rounds, ROUNDS) if found.found else rounds
        unsteady = judge.unsteady(program, options, rounds) if rounds else []
        unsteady = unsteady or _not_again(judge, program, options, found)
    except Exception as error:
        return _raised(error, "while the program was played")
    return attrs.evolve(found, found=unsteady) if unsteady else found


def _not_again(
    judge: oracles.Judge, program: Program, options: dict[str, object], found: Outcome
) -> list[str]:
    """Returns the outcome of a program that failed and does not fail again."""
    if not found.found or judge.outcome(program, options).found:
        return []
    mine, its = judge.names
    first, *rest = found.found
    return [f"nondeterministic: {mine} differs from {its}, then it does not", first, *rest]


def _raised(error: Exception, when: str) -> Outcome:
    *_, last = traceback.extract_tb(error.__traceback__)
    text = str(error).split("\n")[0][:200]
    place = f"{last.filename}:{last.lineno}, in {last.name}: {last.line}"
    return Outcome(found=[f"raised: {type(error).__name__} {when}: {text}", f"at {place}"])


def _picture(plan: Plan, program: Program) -> str:
    own = plan.engine if plan.engine in ("aotlite", "torch") else "aotlite"
    return drawing(program, on=engine(own))
