"""CACHE-3: what another process might read otherwise is not kept, and the reason is said."""

from __future__ import annotations

import cProfile
import functools
import math
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import aotlite as al
from aotlite.artifacts.reads.watched_names import watched_names
from aotlite.ir.meta import tensor_meta
from aotlite.subclasses import TwoTensor
from tests.artifacts.looked_up import cached, outcomes
from tests.helpers.own_ops import taken_out

LOG: list[float] = []
DRAWS = np.random.default_rng(0)
COUNTER = {"n": 0}
BOUND = 2


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))


def reads_clock(x: Any) -> Any:
    return x * time.time()


def reads_file(x: Any) -> Any:
    return x * len(Path(__file__).read_text("utf-8"))


def opens_file(x: Any) -> Any:
    with open(__file__, encoding="utf-8") as file:
        return x * len(file.read())


def draws(x: Any) -> Any:
    return x * random.random()


def draws_by_numpy(x: Any) -> Any:
    return x * float(np.random.rand())


def draws_by_generator(x: Any) -> Any:
    return x * float(DRAWS.normal())


def prints(x: Any) -> Any:
    print("here")
    return x * 2


def appends(x: Any) -> Any:
    LOG.append(1.0)
    return x * 2


def appends_by_a_helper(x: Any) -> Any:
    def inner() -> None:
        LOG.append(1.0)

    inner()
    return x * 2


def binds_a_global(x: Any) -> Any:
    global BOUND
    BOUND = 3
    return x * 2


def counts(x: Any) -> Any:
    COUNTER["n"] = COUNTER["n"] + 1
    return x * 2


def imports(x: Any) -> Any:
    import tests.artifacts.looked_up as module

    return x * len(module.__name__)


def identifies(x: Any) -> Any:
    return x * (id(x) % 7)


def asks_globals(x: Any) -> Any:
    return x * len(globals()["LOG"] or [1])


def writes_environment(x: Any) -> Any:
    os.environ["AL_TEST_WRITTEN"] = "1"
    del os.environ["AL_TEST_WRITTEN"]
    return x * 2


class Square(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 2 * x


def squares(x: Any) -> Any:
    return Square.apply(x)


def hooked(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    return y


def prints_each_time(x: Any) -> Any:
    al.effects.print("x is {}", x)
    return x * 2


def wraps(x: Any) -> Any:
    return TwoTensor(x, x * 2)


def packs(x: Any) -> Any:
    with al.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * BOUND):
        return (x * x).sum()


def formats(x: Any) -> Any:
    return x * len("{.__name__}".format(formats))  # noqa: UP032


def looks_into_globals(x: Any) -> Any:
    return x * looks_into_globals.__globals__["BOUND"]


CASES = {
    formats: "formats a text whose fields may read attributes",
    looks_into_globals: "asks an object for its __globals__",
    reads_clock: "calls time.time",
    reads_file: "of ",
    opens_file: "open",
    draws: "random",
    draws_by_numpy: "rand",
    draws_by_generator: "a numpy.random._generator.Generator",
    prints: "calls builtins.print",
    appends: "changes LOG",
    appends_by_a_helper: "changes LOG",
    binds_a_global: "binds the global 'BOUND'",
    counts: "changes COUNTER",
    imports: "imports 'tests.artifacts.looked_up'",
    identifies: "calls builtins.id",
    asks_globals: "calls builtins.globals",
    writes_environment: "writes environment variables",
    squares: "users' Python runs in the backward",
    hooked: "the function registers hooks",
    packs: "the function sets hooks of saved tensors, which run later",
    prints_each_time: "the function has effects",
    wraps: "a tensor is a wrapper subclass",
}


@pytest.mark.rules("CACHE-3", "CACHE-4")
@pytest.mark.parametrize("function", CASES, ids=lambda each: each.__name__)
def test_what_another_process_may_read_otherwise_is_not_kept(function, capsys):
    with outcomes() as found:
        cached(function)(al.ones(3, requires_grad=True))
        cached(function)(al.ones(3, requires_grad=True))
    assert ["miss", "bypass"] * 2 == found
    assert CASES[function] in found.why


@pytest.mark.rules("CACHE-4")
def test_a_clock_in_a_nested_body_counts():
    def outer(x):
        inner = functools.partial(lambda y: y * time.perf_counter())
        return sum(inner(each) for each in [x])

    with outcomes() as found:
        cached(outer)(al.ones(3))
    assert "bypass" == found[-1] and "time.perf_counter" in found.why


def formats_numbers(x: Any) -> Any:
    return x * len("{:{}}, {{}}".format(BOUND, 5))


@pytest.mark.rules("CACHE-3")
def test_a_literal_that_names_no_attributes_is_kept():
    with outcomes() as found:
        cached(formats_numbers)(al.ones(3))
    assert ["miss", "kept"] == found, found.why


@pytest.mark.rules("CACHE-3")
def test_strict_cache_raises_with_the_reason():
    with pytest.raises(al.UnsupportedError, match="since prints calls builtins.print, expected"):
        cached(prints, strict_cache=True)(al.ones(3))


@pytest.mark.rules("CACHE-3")
@pytest.mark.parametrize(
    "options",
    [
        {"passes": [lambda graph: graph]},
        {"verify": True},
        {"partition": lambda graph: None},
        {"observer": lambda name, value: None},
        {"fw_compiler": lambda graph: None},
    ],
    ids=["passes", "verify", "partition", "observer", "fw_compiler"],
)
def test_options_without_words_are_bypassed(options):
    with outcomes() as found, pytest.raises(al.UnsupportedError, match="option"):
        cached(lambda x: x * 2, strict_cache=True, **options)(al.ones(3))
    assert ["bypass"] == found


@pytest.mark.rules("CACHE-3")
def test_a_profiler_that_is_on_goes_on_and_nothing_is_kept():
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        with outcomes() as found:
            result = cached(pure)(al.ones(3))
    finally:
        profiler.disable()
    assert [2.0, 2.0, 2.0] == result.tolist()
    assert "bypass" == found[-1] and "a profiler is on" in found.why
    assert any("pure" in str(entry.code) for entry in profiler.getstats())


def pure(x: Any) -> Any:
    return x * math.sqrt(4.0)


@pytest.mark.rules("CACHE-9")
def test_environment_variables_count_if_they_are_read(monkeypatch):
    def read(x):
        return x * float(os.environ.get("AL_TEST_SCALE", "2"))

    monkeypatch.delenv("AL_TEST_SCALE", raising=False)
    with outcomes() as found:
        cached(read)(al.ones(3))
        monkeypatch.setenv("AL_TEST_OTHER", "1")
        assert [2.0] * 3 == cached(read)(al.ones(3)).tolist()
        monkeypatch.setenv("AL_TEST_SCALE", "5")
        assert [5.0] * 3 == cached(read)(al.ones(3)).tolist()
    assert ["miss", "kept", "hit", "miss", "kept"] == found
    assert "$AL_TEST_SCALE is '5', was None when it was compiled" == found.why
    assert "_Noted" not in type(os.environ._data).__name__


@pytest.mark.rules("CACHE-3", "CACHE-6")
@pytest.mark.parametrize("rate", [2.0, 3.0])
def test_a_registered_op_is_not_kept_since_its_gradient_may_be_another(rate):
    with taken_out():
        al.register_op(
            "cache_scale(Tensor self) -> Tensor",
            meta=lambda a: tensor_meta(a.shape, None, a.dtype, a.device),
            kernel=lambda xp, meta, a: a * rate,
            vjp={"self": lambda grad: grad * rate},
        )
        x = al.ones(2, requires_grad=True)
        with outcomes() as found:
            cached(lambda x: al.cache_scale(x).sum())(x).backward()
    assert ["miss", "bypass"] == found
    assert "the op cache_scale is a user's own, whose rules may differ" == found.why
    assert [rate, rate] == x.grad.tolist()


def inverted(x: Any) -> Any:
    return al.linalg.inv(x)


class Hook:
    """An import hook as editable packages and pytest have one: it asks for files."""

    asked: ClassVar[list[str]] = []

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> None:
        cls.asked.append(name)
        Path(__file__).exists()


@pytest.mark.rules("CACHE-4")
def test_hooks_of_an_import_that_aotlite_needs_are_no_code_of_the_function(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [Hook, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "aotlite.linalg", raising=False)
    monkeypatch.delattr(al, "linalg", raising=False)
    with outcomes() as found:
        cached(inverted)(al.eye(2))
    assert "aotlite.linalg" in Hook.asked
    assert ["miss", "kept"] == found, found.why


@pytest.mark.rules("CACHE-9")
def test_what_other_threads_ask_for_is_no_read():
    def ask() -> None:
        os.environ.get("AL_TEST_OF_ANOTHER")
        getattr(al, "of_another", None)

    thread = threading.Thread(target=ask)
    with watched_names() as names:
        os.environ.get("AL_TEST_OWN")
        thread.start()
        thread.join()
    assert {"AL_TEST_OWN": None} == names.environment
    assert "of_another" not in names.attributes
