"""A function that changes a setting of the process is refused: a compiled call would not set it."""

from __future__ import annotations

import contextlib
import decimal
import functools
import gc
import itertools
import logging
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.stages.s1_capture.environment.process_settings import ProcessSettings

pytestmark = pytest.mark.rules("CAP-15")


class Discarding(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        del record


CHANGES: dict[str, Callable[[], object]] = {
    "a variable of the environment": lambda: os.environ.__setitem__("AL_ORDER", "1"),
    "an update of the environment": lambda: os.environ.update(AL_ORDER="1"),
    "a deleted variable": lambda: os.environ.pop("AL_THERE"),
    "simplefilter": lambda: warnings.simplefilter("error"),
    "filterwarnings": lambda: warnings.filterwarnings("always", "no such text"),
    "resetwarnings": lambda: warnings.resetwarnings(),
    "random.seed": lambda: random.seed(3),
    "random.setstate": lambda: random.setstate(random.Random(5).getstate()),
    "numpy.random.seed": lambda: np.random.seed(3),
    "numpy.random.set_state": lambda: np.random.set_state(np.random.RandomState(5).get_state()),
    "seterr": lambda: np.seterr(all="ignore"),
    "set_printoptions": lambda: np.set_printoptions(precision=3),
    "getcontext": lambda: setattr(decimal.getcontext(), "prec", 5),
    "setrecursionlimit": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 7),
    "setswitchinterval": lambda: sys.setswitchinterval(0.125),
    "sys.path": lambda: sys.path.append("no such folder"),
    "chdir": lambda: os.chdir(os.path.dirname(os.getcwd())),
    "set_threshold": lambda: gc.set_threshold(1234, 5, 6),
    "the level of logging": lambda: logging.getLogger().setLevel(7),
    "logging.disable": lambda: logging.disable(7),
    "addHandler": lambda: logging.getLogger().addHandler(Discarding()),
    "sys.stdout": lambda: setattr(sys, "stdout", sys.stderr),
    "excepthook": lambda: setattr(sys, "excepthook", print),
    "set_num_threads": lambda: al.set_num_threads(3),
}


@pytest.fixture(autouse=True)
def _there(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AL_THERE", "1")
    monkeypatch.delenv("AL_ORDER", raising=False)
    np.random.get_state()  # NumPy loads them when they are asked for
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = ProcessSettings()
        settings.look()
        with decimal.localcontext() as context:
            context.prec = 9
            yield
        settings.put_back()


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_setting_is_refused_and_put_back(name):
    change = CHANGES[name]

    def f(x):
        change()
        return x * 2

    seen = ProcessSettings()
    seen.look()
    compiled = al.compile(f, backend="reference")
    with pytest.raises(al.UnsupportedError, match="which a compiled call would not make") as caught:
        compiled(al.ones(1))
    assert any("test_cap_settings.py" in note for note in caught.value.__notes__)
    after = ProcessSettings()
    after.look()
    assert seen._before == after._before
    assert not compiled.entries


def test_the_error_names_the_variable_and_the_line():
    def f(x):
        os.environ["AL_ORDER"] = "1"
        return x * 2

    with pytest.raises(
        al.UnsupportedError, match=r"a change of os.environ\['AL_ORDER'\],"
    ) as caught:
        al.compile(f)(al.ones(1))
    assert any('os.environ["AL_ORDER"] = "1"' in note for note in caught.value.__notes__)


def test_the_way_out_sets_it_in_each_call(monkeypatch):
    monkeypatch.setenv("AL_ORDER", "0")
    compiled = al.compile(
        lambda x: (al.effects.callback(lambda: os.environ.update(AL_ORDER="1")), x * 2)[1]
    )
    for _ in range(2):
        os.environ["AL_ORDER"] = "0"
        compiled(al.ones(1))
        assert "1" == os.environ["AL_ORDER"]


def kept(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = x * 2
    with np.errstate(all="ignore"), np.printoptions(precision=2), decimal.localcontext() as context:
        context.prec = 5
    with contextlib.redirect_stdout(sys.stderr):
        pass
    os.environ["AL_ORDER"] = "1"
    del os.environ["AL_ORDER"]
    return y


def the_same(x: Any) -> Any:
    al.set_num_threads(al.get_num_threads())
    os.environ["AL_THERE"] = "1"
    np.seterr(**np.geterr())
    return x * 2


def draws_of_its_own(x: Any) -> Any:
    return x * random.Random(3).random() * np.random.RandomState(3).rand()


def seeds_aotlite(x: Any) -> Any:
    al.manual_seed(3)
    return x * al.rand(1)


def logs(x: Any) -> Any:
    logging.getLogger("aotlite.no_such").debug("shape %s", x.shape)
    warnings.warn("said", stacklevel=1)
    return x * 2


@pytest.mark.parametrize("function", [kept, the_same, draws_of_its_own, seeds_aotlite, logs])
def test_what_is_as_before_afterwards_compiles(function):
    compiled = al.compile(function, backend="reference")
    for value in (1.0, 2.0):
        x = al.tensor([value])
        assert function(x).tolist() == compiled(x).tolist()


seeded, filters = random.seed, warnings.simplefilter
HELD: dict[str, Callable[[], object]] = {
    "a partial": functools.partial(random.seed, 3),
    "a bound method": lambda: seeded(3),
    "a function of another name": lambda: filters("error"),
}


@pytest.mark.parametrize("name", HELD)
def test_what_sets_it_may_be_held_under_another_name(name):
    change = HELD[name]

    def f(x):
        change()
        return x * 2

    with pytest.raises(al.UnsupportedError, match="which a compiled call would not make"):
        al.compile(f)(al.ones(1))


def test_another_thread_may_change_settings_meanwhile():
    """Nothing in the code of the function names what sets it."""
    done = []

    def other() -> None:
        for number in itertools.count():
            random.seed(number)
            if done:
                return

    def f(x):
        time.sleep(0.02)
        return x * 2

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert [2.0] == al.compile(f)(al.ones(1)).tolist()
    finally:
        done.append(True)
        thread.join()
