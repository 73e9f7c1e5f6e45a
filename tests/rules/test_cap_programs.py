"""Programs that change what they read: each is refused, or does what eager does in every call.

Everyday programs (caches, counters, iterators, lazy attributes), and all pairs of a way in which a
method is reached and a form in which it writes what it reads.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import fractions
import functools
import io
import itertools
import logging
import operator
import queue
import textwrap
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from tests.rules.helpers import (
    changing_programs,
    hidden_programs,
    ordinary_programs,
    stateful_programs,
)
from tests.rules.helpers.written_forms import FORMS, PRELUDE, SOURCE, WAYS

pytestmark = pytest.mark.rules("CAP-14")


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that measures: what it writes is read by nobody who is called."""
    calls: collections.Counter[str] = collections.Counter()
    total = [0.0]

    @functools.wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        total[0] += time.perf_counter() - start
        calls[function.__name__] += 1
        return result

    measured.calls = calls  # type: ignore[attr-defined]
    return measured


NAMES: dict[str, Any] = {
    each.__name__: each
    for each in (
        *(collections, contextlib, contextvars, copy, dataclasses, enum, fractions, functools, io),
        *(itertools, logging, operator, queue, threading, time, types, warnings, weakref, timed),
    )
}
NAMES |= {"al": al, "nn": nn, "T": al.tensor, "__name__": __name__}


def snippets(text: str) -> dict[str, str]:
    """The programs of a table, by name."""
    parts = [each.partition("\n") for each in text.split("### ")[1:]]
    return {name: body for name, _, body in parts}


def made(body: str) -> Callable[[Any], Any]:
    """A program of its own."""
    names = dict(NAMES)
    exec(f"def make():\n{textwrap.indent(body, '    ')}", names)
    made: Callable[[Any], Any] = names["make"]()
    return made


def results(function: Callable[[Any], Any]) -> list[Any]:
    return [function(al.tensor([value])).tolist() for value in (1.0, 2.0, 3.0)]


def outcome(make: Callable[[], Callable[[Any], Any]]) -> str:
    """How three calls compiled compare with three eager ones: "refused" or "equal"."""
    expected = results(make())
    try:
        found = results(al.compile(make(), backend="reference"))
    except al.UnsupportedError as error:
        assert any(each.startswith(("Instead: ", "Every call would")) for each in error.__notes__)
        return "refused"
    assert expected == found
    return "equal"


STATEFUL = {
    name: body
    for table in (stateful_programs, changing_programs, hidden_programs)
    for name, body in snippets(table.PROGRAMS).items()
}
SETTLED = ("lru counter",)
"""Whose state is that of all later calls after the first one (CAP-16)."""
ORDINARY = snippets(ordinary_programs.PROGRAMS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STATEFUL)
def test_programs_that_change_what_they_read_are_refused(name):
    expected = "equal" if name in SETTLED else "refused"
    assert expected == outcome(lambda: made(STATEFUL[name]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ORDINARY)
def test_programs_whose_state_changes_no_result_compile(name):
    assert "equal" == outcome(lambda: made(ORDINARY[name]))


# ---------------------------------------------------------------- ways to a method, and forms
def program(way: str, form: str) -> Callable[[Any], Any]:
    """A function that calls, in this way, a method that writes in this form what it reads."""
    first, write, read = [each.replace("; ", "\n        ") for each in FORMS[form]]
    decorator, last = WAYS[way]
    names: dict[str, Any] = {"__name__": "users_program"}
    exec(PRELUDE, names)
    exec(SOURCE.format(first=first, write=write, read=read, decorator=decorator), names)
    exec(last, names)
    function: Callable[[Any], Any] = names["fn"]
    return function


def check(way: str, form: str) -> None:
    assert "refused" == outcome(lambda: program(way, form))


@pytest.mark.parametrize("way", WAYS)
def test_a_counter_is_found_whatever_way_leads_to_it(way):
    check(way, "an attribute")


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_writing_is_found_behind_a_decorator(form):
    check("a plain wrapper", form)


@settings(max_examples=60)
@given(st.sampled_from([*WAYS]), st.sampled_from([*FORMS]))
@pytest.mark.draws(long=2000)
def test_all_forms_are_found_in_all_ways(way, form):
    check(way, form)
