"""Runs the properties against one mutant in a child process, and returns the verdict.

A mutant is caught by the first case that fails, by a hang, or by a crash. It survives if all cases
that execute its statement pass, and likely further ones until the time is over.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import attrs

from tests.mutation.limits import Hang, at_most, limit
from tests.mutation.reach import Reach
from tests.mutation.replaced import replace_source
from tests.mutation.sites import Mutant
from tests.mutation.swapped import Ran, find_functions, noting_calls, swap
from tests.mutation.targets import ROOT

HEAVY = (
    *("attrs", "numpy", "sympy", "networkx", "optree", "ml_dtypes"),
    *("rich.console", "rich.table", "hypothesis", "pytest"),
)
"""The imports of aotlite and the properties, without aotlite, which each child imports."""
IMPORT = 20.0
"""The limit for an import of aotlite with a mutant, in seconds."""


@attrs.frozen
class Verdict:
    """The outcome of a mutant."""

    kind: str
    """"caught", "hang", "crash" or "survived"."""
    by: str = ""
    """The case that caught it."""
    text: str = ""
    """The message of the case."""
    cases: int = 0
    """The number of cases that passed before: those that execute its statement, and neighbors."""
    of: int = 0
    """The number of cases that execute its statement."""
    seconds: float = 0.0

    @property
    def is_caught(self) -> bool:
        """Whether a property failed for it."""
        return self.kind != "survived"


def preload() -> None:
    """Imports the modules that all children need; called before the first child."""
    for name in HEAVY:
        importlib.import_module(name)
    if importlib.util.find_spec("torch") is not None:  # an oracle for layouts
        importlib.import_module("torch").set_num_threads(1)
    if "aotlite" in sys.modules:
        raise ValueError("aotlite is imported, expected a process that has not imported it")
    spec = importlib.util.find_spec("aotlite")
    if spec is None or spec.origin is None or Path(spec.origin).parents[1] != ROOT:
        raise ValueError(f"aotlite is {spec and spec.origin}, expected the one of {ROOT}")


def preload_all() -> Ran:
    """Imports aotlite and the properties, too; returns the functions that ran meanwhile."""
    with noting_calls() as ran:
        from tests.mutation import families

        families.families()
        for path in sorted((ROOT / "aotlite").rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if name.startswith(("aotlite.stages", "aotlite.eager", "aotlite.ir")):
                importlib.import_module(name.removesuffix(".__init__"))
    find_functions()
    gc.collect()
    gc.freeze()
    return ran


# ---------------------------------------------------------------------------------------- the order
def planned(reach: Reach, mutant: Mutant, seed: int, budget: float) -> list[str]:
    """The cases to run, in order: those that execute the statement; families take turns.

    Each family gets equal time, so that many cases of a fast family weigh as much as few of a slow
    one. The cases take three times the budget, as they may be faster than recorded.
    """
    rng = random.Random(f"{seed}:{mutant.key}")
    groups: dict[str, list[str]] = defaultdict(list)
    for case in reach.cases_of(mutant.file, mutant.first, mutant.last):
        groups[case.rpartition(" #")[0]].append(case)
    for name, cases in groups.items():
        groups[name] = rng.sample(cases, len(cases))
    # The programs about aliasing are the broadest: they have half of the time, but where eager and
    # compiled functions share the code, and a difference between the two is rare.
    weight = dict.fromkeys(groups, 1.0)
    weight["alias programs"] = 1.0 if mutant.file.startswith("ir/") else 0.1
    return list(_in_turns(groups, reach.seconds, weight, 3 * budget))


def _in_turns(
    groups: dict[str, list[str]],
    seconds: dict[str, float],
    weight: dict[str, float],
    budget: float,
) -> Iterator[str]:
    spent = {name: min(seconds[c] for c in cases) * weight[name] for name, cases in groups.items()}
    total = 0.0
    while spent and total < budget:
        name = min(spent, key=lambda each: spent[each])
        case = groups[name].pop()
        yield case
        total += seconds[case]
        spent[name] += seconds[case] * weight[name]
        if not groups[name]:
            del spent[name]


# ---------------------------------------------------------------------------------------- the child
def start(
    mutant: Mutant | None, cases: list[str], seconds: dict[str, float], budget: float, out: Path
) -> int:
    """Forks a process that runs the cases and writes its verdict to a file; returns its id.

    Without a mutant it runs the original code. If the mutant's module has been imported, its
    function's code is swapped.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        _silence()
        limit(2 * budget + 60)
        verdict = _judge(mutant, cases, seconds, budget)
        out.write_text(json.dumps(attrs.asdict(verdict)))
        code = 0
    finally:
        os._exit(code)


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)


def _judge(
    mutant: Mutant | None, cases: list[str], seconds: dict[str, float], budget: float
) -> Verdict:
    begin = time.process_time()
    if mutant is not None:
        imported = _put_in_place(mutant)
        if imported is not None:
            return attrs.evolve(imported, of=len(cases))
    from tests.mutation.families import neighbors, run

    passed = 0
    further = chain.from_iterable(map(neighbors, cases)) if mutant is not None else ()
    for case in chain(cases, further):
        if time.process_time() - begin > budget:
            break
        found = _attempt(case, partial(run, case), 6 + 25 * seconds.get(case, 0.1))
        if found is not None:
            spent = round(time.process_time() - begin, 1)
            return attrs.evolve(found, cases=passed, of=len(cases), seconds=spent)
        passed += 1
    spent = round(time.process_time() - begin, 1)
    return Verdict("survived", cases=passed, of=len(cases), seconds=spent)


def _put_in_place(mutant: Mutant) -> Verdict | None:
    """Lets this process import the mutant's code; the verdict if that fails."""
    source = mutant.source()
    if source is None:
        raise ValueError(f"{mutant.key} changes nothing")
    if _module(mutant) in sys.modules:
        try:
            swap(mutant, source)
        except (KeyError, ValueError) as error:
            return Verdict("survived", text=f"cannot be put in place: {error}")
        return None
    replace_source(ROOT / mutant.file, source)
    found = _attempt("import", lambda: importlib.import_module(_module(mutant)), IMPORT)
    return found and attrs.evolve(found, kind="hang" if found.kind == "hang" else "crash")


def _module(mutant: Mutant) -> str:
    name = mutant.file.removeprefix("aotlite/").removesuffix(".py").replace("/", ".")
    return f"aotlite.{name}"


def _attempt(name: str, action: Any, seconds: float) -> Verdict | None:
    """Runs an action; returns a verdict if it raises or takes too long."""
    try:
        with at_most(seconds):
            action()
    except Hang:
        return Verdict("hang", name, f"more than {seconds:.0f} s")
    except BaseException as error:
        return Verdict("caught", name, f"{type(error).__name__}: {error}"[:300])
    return None
