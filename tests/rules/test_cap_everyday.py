"""Everyday programs with state: what changes no result compiles, what changes one is refused.

Two columns: in `FREE` no result depends on what the function changes, so that a refusal is a false
alarm; in `DEPENDENT` one does, so that a function that compiles would repeat the value of its first
call.
"""

from __future__ import annotations

import threading

import attrs
import pytest

import aotlite as al
from tests.rules.helpers import dependent_programs, everyday_programs
from tests.rules.test_cap_programs import made, outcome, snippets

pytestmark = pytest.mark.rules("CAP-14")

FREE = snippets(everyday_programs.PROGRAMS)
DEPENDENT = snippets(dependent_programs.PROGRAMS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FREE)
def test_state_that_no_result_depends_on_is_no_reason_to_refuse(name):
    assert "equal" == outcome(lambda: made(FREE[name]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DEPENDENT)
def test_state_that_a_result_depends_on_is_refused_or_repeated(name):
    """`outcome` compares three calls with eager's where it is not refused."""
    assert outcome(lambda: made(DEPENDENT[name])) in ("refused", "equal")


def test_the_first_text_of_an_attrs_object_in_a_thread_is_no_change():
    """attrs notes in its own state of the thread what a `__repr__` shows."""

    @attrs.define
    class Scale:
        size: int = 3

    scale, found = Scale(), []

    def f(x):
        print(scale)
        return x * 2

    def in_thread():
        found.append(al.compile(f, backend="reference")(al.ones(2)).tolist())

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert [[2.0, 2.0]] == found
