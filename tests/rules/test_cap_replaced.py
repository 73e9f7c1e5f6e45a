"""What a function puts where it reads: attributes that were empty, or that the class gave;
functions of aotlite; locks, exceptions, registered classes (CAP-14)."""

from __future__ import annotations

import functools
import types

import pytest

import aotlite as al
from tests.rules.helpers import replaced_programs
from tests.rules.test_cap_programs import made, outcome, snippets

pytestmark = pytest.mark.rules("CAP-14")

DEPENDENT = snippets(replaced_programs.PROGRAMS)
FREE = snippets(replaced_programs.FREE)


@pytest.mark.parametrize("name", DEPENDENT)
def test_another_thing_where_a_function_reads_is_refused(name):
    assert "refused" == outcome(lambda: made(DEPENDENT[name]))


@pytest.mark.parametrize("name", FREE)
def test_what_no_later_call_reads_may_be_put_anywhere(name):
    assert "equal" == outcome(lambda: made(FREE[name]))


class Counter:
    def __init__(self):
        self.n = 0

    def __call__(self, x):
        self.n += 1
        return x * self.n


class Net:
    scale = None


def message(function):
    with pytest.raises(al.UnsupportedError) as caught:
        al.compile(function)(al.ones(2))
    return str(caught.value)


def test_the_error_says_what_became_of_the_value():
    box, net = types.SimpleNamespace(shape=None, last=None), Net()

    def keeps_a_shape(x):
        if box.shape is None:
            box.shape = x.shape
            return x
        return x * box.shape[0]

    def takes_a_list(x):
        if box.last != []:
            box.last = []
            return x
        return x * 2

    def hides_the_classs(x):
        if net.scale is None:
            net.scale = Counter()
            return x
        return x * 2

    assert "box.shape, which the function itself changed from None to a tuple" in message(
        keeps_a_shape
    )
    assert "box.last, which the function itself changed from None to a list" in message(
        takes_a_list
    )
    assert "net.scale, which the function itself changed from None to a Counter" in message(
        hides_the_classs
    )
    assert "scale" not in vars(net)


def test_the_number_of_a_compiled_object_is_called_as_its_method_calls_it():
    assert "a read of self.n," in message(Counter())
    assert "a read of self.n," in message(functools.partial(Counter()))
    counter = Counter()
    assert "a read of counter.n," in message(lambda x: counter(x))
