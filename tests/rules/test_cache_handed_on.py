"""CACHE-3, CACHE-4, CACHE-9: what C calls unseen, and states of aotlite that are asked for."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import random
import sys
import types
from typing import Any

import pytest

import aotlite as al
from aotlite.artifacts.reads.call_images import STATES, UNKEPT
from tests.artifacts.looked_up import cached, outcomes

CLOCKS = {
    "time.perf_counter": "",
    "os.getpid": "",
    "datetime.datetime.now": "",
    "gc.get_count": "",
    "sys._getframe": "",
    "operator.attrgetter('perf_counter')(time)": "",
    "getattr(time, 'perf_' + 'counter')": "",
    "now": "from time import time_ns as now",
}
"""Impure functions in C that need no argument, and what a function does before to have them."""
WAYS = (
    "next(iter({}, object()))",
    "functools.partial({})()",
    "list(itertools.starmap({}, [()]))[0]",
    "collections.defaultdict({})[0]",
    "functools.partial(functools.partial, {})()()",
    "next(map(lambda give: next(iter(give, object())), [{}]))",
    "type('Made', (), dict(__call__=staticmethod({})))()()",
    "type('Made', (), dict(value=property(lambda self: next(iter({}, object())))))().value",
)
"""Expressions by which C calls it."""
HOLDERS = {
    "itself": "{before}\n    got = {clock}",
    "a variable": "{before}\n    held = {clock}\n    got = held",
    "a default": "{before}\n    def inner(held={clock}): return held\n    got = inner()",
    "a cell": "{before}\n    held = {clock}\n    def inner(): return held\n    got = inner()",
    "an item": "{before}\n    got = dict(one=[{clock}])['one'][0]",
    "an object": "{before}\n    class Has: one = staticmethod({clock})\n    got = Has.one",
}
HEAD = """
import collections, datetime, functools, gc, itertools, operator, os, sys, time
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))


def module_of(text: str, path: Any, name: str) -> types.ModuleType:
    """A module of this text, in a file."""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(clock: str, way: str, holder: str) -> str:
    body = HOLDERS[holder].format(before=CLOCKS[clock], clock=clock)
    said = way.format("got").replace("{}", "got")
    return f"    {body}\n    {said}\n    return x * 2"


@pytest.mark.rules("CACHE-3", "CACHE-4")
def test_a_clock_that_c_calls_is_never_kept(tmp_path: Any) -> None:
    """Each clock, each way in which C calls it, and each holder, in drawn combinations."""
    every = list(itertools.product(CLOCKS, WAYS, HOLDERS))
    drawn = random.Random(0).sample(every, 72)
    drawn += [(clock, WAYS[0], "itself") for clock in CLOCKS]
    drawn += [("time.perf_counter", way, "a variable") for way in WAYS]
    drawn += [("time.perf_counter", WAYS[0], holder) for holder in HOLDERS]
    texts = [f"def f{k}(x):\n{text_of(*each)}\n" for k, each in enumerate(drawn)]
    module = module_of(HEAD + "\n".join(texts), tmp_path / "clocks_in_c.py", "clocks_in_c")
    for number, each in enumerate(drawn):
        with outcomes() as found:
            cached(getattr(module, f"f{number}"))(al.ones(1))
        assert ["miss", "bypass"] == found, (each, found)


HELD = """
import numpy as np, collections, datetime, functools, os, time
PART = functools.partial(time.perf_counter)
TABLE = collections.defaultdict(time.perf_counter)
class Static:
    __call__ = staticmethod(time.perf_counter)
    __len__ = functools.partial(os.getpid)
class Holds: pass
class Meta(type): __call__ = staticmethod(time.perf_counter)
class ByMeta(metaclass=Meta): pass
class Gives: __get__ = lambda self, *of: PART()
class Descriptor:
    value = Gives()
    __mul__ = staticmethod(functools.partial(time.perf_counter))
STATIC, OBJECT = Static(), Holds()
OBJECT.module, OBJECT.parts = time, [{"one": functools.partial(time.perf_counter)}]
def made():
    import time as inner
    def f(x): return x * next(iter(inner.perf_counter, None))
    return f
def by_default(x, held=time): return x * next(iter(held.perf_counter, None))
def by_partial(x): return x * PART()
def by_factory(x): return x * TABLE.copy()["one"]
def by_class(x): return x * STATIC()
def by_length(x): return x * len(STATIC)
def by_metaclass(x): return x * ByMeta()
def by_descriptor(x): return x * Descriptor().value
def by_numpy(x): return x * int(np.datetime64("now").astype("int64") % 7)
def by_module_of_an_object(x): return x * next(iter(OBJECT.module.perf_counter, None))
def by_parts_of_an_object(x): return x * OBJECT.parts[0]["one"]()
def by_hash(x): return x * (max(["a", "b"], key=hash) == "a")
def by_method(x): return x * ("a".__hash__() % 7)
def by_now(x): return x * datetime.datetime.now().microsecond
by_cell = made()
"""


@pytest.mark.rules("CACHE-3", "CACHE-4")
def test_an_object_that_holds_a_clock_is_never_kept(tmp_path: Any) -> None:
    module = module_of(HELD, tmp_path / "held_clocks.py", "held_clocks")
    functions = [value for name, value in vars(module).items() if name.startswith("by_")]
    assert 14 == len(functions)
    for function in functions:
        with outcomes() as found:
            cached(function)(al.ones(1))
        assert ["miss", "bypass"] == found, (function, found)


PURE = """
import collections, datetime, functools, itertools, math, operator, os, time
import aotlite as al
from aotlite import nn
import aotlite.nn.functional as F
from time import monotonic
VERBOSE, NET = False, nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.LayerNorm(3), nn.Dropout(0.0))
SCALED = functools.partial(operator.mul, 2.0)
def maps(x): return x * sum(map(math.sqrt, [1.0, 4.0])) * functools.reduce(operator.add, [1, 2])
def sorts(x): return x * max([1, -2], key=abs) * sorted([3, 1], key=operator.neg)[0]
def texts(x): return x * len(list(map(str.strip, ["a "]))) * len(sorted("ab", key=str.lower))
def parts(x): return SCALED(x) + functools.partial(F.relu)(x)
def factories(x):
    groups = collections.defaultdict(list)
    groups[1].append(2)
    return x * len(groups) * sum(itertools.starmap(pow, [(2, 3)]))
def dates(x): return x * datetime.date(2020, 1, 1).year
def dead(x):
    if VERBOSE:
        print(time.perf_counter(), os.getpid(*[]), datetime.datetime.now(tz=None), end="")
    return F.softmax(x, 0) if isinstance(x, al.Tensor) else x
def nets(x): return NET(x).sum()
def arrays(x): return x * len(dict.fromkeys([1, 2])) * int("7") * next(iter(map(int, ["3"])))
"""


@pytest.mark.rules("CACHE-1", "CACHE-3")
def test_everyday_functions_that_c_calls_are_kept(tmp_path: Any) -> None:
    module = module_of(PURE, tmp_path / "pure_in_c.py", "pure_in_c")
    names = "maps sorts texts parts factories dates dead nets arrays".split()
    for name in names:
        with outcomes() as found:
            cached(getattr(module, name))(al.ones(2))
        assert ["miss", "kept"] == found, (name, found.why)


# ------------------------------------------------------------------------------------ states
@pytest.mark.rules("CACHE-9")
def test_the_number_of_threads_counts_if_it_is_asked_for() -> None:
    def asks(x: Any) -> Any:
        return x * al.get_num_threads()

    def asks_not(x: Any) -> Any:
        return x * 2

    before = al.get_num_threads()
    try:
        with outcomes() as found:
            for number in (1, 1, 2):
                al.set_num_threads(number)
                assert [number] == cached(asks)(al.ones(1)).tolist()
                cached(asks_not)(al.ones(1))
        assert ["miss", "kept"] * 2 + ["hit"] * 2 + ["miss", "kept", "hit"] == found
        assert "get_num_threads() is 2, was 1 when it was compiled" in found.why
    finally:
        al.set_num_threads(before)


ASKED = {
    "get_num_threads": lambda x: x * al.get_num_threads(),
    "get_default_dtype": lambda x: x * (al.get_default_dtype() is al.float32),
    "is_grad_enabled": lambda x: x * al.is_grad_enabled(),
    "is_inference_mode_enabled": lambda x: x * al.is_inference_mode_enabled(),
}


def sets_threads(x: Any) -> Any:
    al.set_num_threads(al.get_num_threads())
    return x * 2


def sets_state(x: Any) -> Any:
    al.set_rng_state(al.get_rng_state())
    return x * 2


def seeds(x: Any) -> Any:
    al.manual_seed(0)
    return x * 2


def sets_logs(x: Any) -> Any:
    al.set_logs()
    return x * 2


REFUSED = {
    "set_num_threads": sets_threads,
    "set_rng_state": sets_state,
    "manual_seed": seeds,
    "set_logs": sets_logs,
    "is_enabled": lambda x: x * al.compiled_autograd.is_enabled(),
    "of a generator": lambda x: x * al.Generator().initial_seed(),
}


@pytest.mark.rules("CACHE-3", "CACHE-9")
@pytest.mark.parametrize("name", [*ASKED, *REFUSED])
def test_a_state_of_aotlite_is_a_read_or_a_reason(name: str, monkeypatch: Any) -> None:
    function: Any = {**ASKED, **REFUSED}[name]
    with outcomes() as found:
        cached(function)(al.ones(1))
        if name in ASKED:
            monkeypatch.setitem(STATES, name, lambda: "another state")
            cached(function)(al.ones(1))
    expected = ["miss", "kept", "miss"] if name in ASKED else ["miss", "bypass"]
    assert expected == found[: len(expected)], found.why


@pytest.mark.rules("CACHE-9")
def test_every_public_question_for_a_state_is_known() -> None:
    """A new one has to be a read, or a reason."""
    words = tuple("get_ set_ is_ initial_ manual_ memory_ current_ mem_ device_c".split())
    known: set[Any] = {*STATES.values(), *UNKEPT}
    pure = {"is_tensor", "is_complex", "is_floating_point"}
    found: dict[str, Any] = {}
    for module in (al, al.autograd, al.cuda, al.random):
        names = [n for n in dir(module) if n.startswith(words)]
        found |= {n: each for n in names if inspect.isfunction(each := getattr(module, n))}
    assert found.keys() >= {"get_num_threads", "memory_allocated", "set_rng_state"}
    assert pure == {name for name, each in found.items() if each not in known}
