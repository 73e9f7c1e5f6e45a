"""Attributes of an Observed, read and written while a capture runs and while none does."""

import copy
import threading

import pytest

import aotlite as al
from aotlite import nn
from aotlite.eager.base.modes import STATE
from aotlite.eager.tracked_objects import TrackedObject, observing, substituting
from tests.nn.helpers.listener import Listener


@pytest.fixture
def listener():
    """The recorder of a capture that runs in this thread during the test."""
    recorder = Listener()
    STATE.recorder = recorder
    with observing():
        yield recorder
    STATE.recorder = None


class Layer(nn.Module):
    gain = 2

    def __init__(self):
        self.w = nn.Parameter(al.ones(2))
        self.limit = 3.0

    @property
    def doubled(self):
        return 2 * self.limit

    def forward(self, x):
        return x * self.w


@pytest.fixture
def layer():
    """A layer made before the listener listens, if it is named first."""
    return Layer()


def test_a_read_during_capture_is_reported_and_gives_what_the_recorder_says(layer, listener):
    assert layer.w == "stand-in"
    assert layer.limit == 3.0
    assert listener.reads == ["w", "limit"]


def test_numbers_and_flags_of_the_class_are_reported(layer, listener):
    assert (layer.gain, layer.training) == (2, True)
    assert listener.reads == ["gain", "training"]


def test_methods_and_dunder_names_are_not_reported(layer, listener):
    assert layer.forward.__name__ == "forward"
    assert layer.__class__ is Layer
    assert listener.reads == []


@pytest.mark.parametrize("ask", [vars, dir, copy.copy, lambda layer: layer.__getstate__()])
def test_who_asks_for_all_attributes_reads_the_dict(layer, listener, ask):
    ask(layer)
    assert set(listener.reads) == {"__dict__"}


def test_a_property_is_reported_as_what_it_reads(layer, listener):
    assert layer.doubled == 6.0
    assert listener.reads == ["limit"]


def test_walking_a_module_reads_its_tensors_as_attributes(layer, listener):
    assert dict(layer.named_parameters()) == {"w": "stand-in"}
    assert listener.reads == ["w"]


def test_a_thread_without_a_recorder_reads_as_ever(layer, listener):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(layer.limit))
    thread.start()
    thread.join()
    assert seen == [3.0]
    assert listener.reads == []


def test_reads_outside_of_observing_run_no_code_of_ours():
    with observing(), observing():
        assert "__getattribute__" in vars(TrackedObject)
    assert "__getattribute__" not in vars(TrackedObject)
    assert Layer.__getattribute__ is object.__getattribute__


def test_observing_ends_when_the_last_thread_leaves():
    inside, leave = threading.Event(), threading.Event()

    def observe():
        with observing():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=observe)
    thread.start()
    inside.wait()
    with observing():
        pass
    assert "__getattribute__" in vars(TrackedObject)
    leave.set()
    thread.join()
    assert "__getattribute__" not in vars(TrackedObject)


def test_observing_ends_when_its_block_raises():
    with pytest.raises(KeyError), observing():
        raise KeyError
    assert "__getattribute__" not in vars(TrackedObject)


def test_a_write_during_capture_is_refused_with_the_attribute_and_the_class(layer, listener):
    with pytest.raises(RuntimeError, match="writing attribute 'limit' of a Layer; keep what"):
        layer.limit = 4.0
    with pytest.raises(RuntimeError, match="writing attribute 'limit' of a Layer"):
        del layer.limit
    with pytest.raises(RuntimeError, match="writing attribute 'training' of a Layer"):
        layer.eval()
    assert vars(layer)["limit"] == 3.0


def test_an_object_made_during_the_capture_takes_writes(listener):
    made = nn.Module()
    made.limit = 1.0
    made.limit = 2.0
    del made.limit
    assert vars(made) == {}


def test_a_copy_made_during_the_capture_takes_writes(layer, listener):
    vars(layer).pop("w")
    twin = copy.copy(layer)
    twin.limit = 5.0
    assert vars(layer)["limit"] == 3.0


def test_substitutes_are_read_by_their_own_thread_until_the_block_ends(layer):
    seen = []
    with substituting({(id(layer), "limit"): 9.0}):
        assert layer.limit == 9.0
        thread = threading.Thread(target=lambda: seen.append(layer.limit))
        thread.start()
        thread.join()
        with substituting({(id(layer), "gain"): 7}):
            assert (layer.limit, layer.gain) == (9.0, 7)
        assert layer.gain == 2
        layer.limit = 10.0
        assert layer.limit == 10.0
    assert seen == [3.0]
    assert layer.limit == 3.0


def test_substitutes_are_not_reported_to_a_capture(layer, listener):
    with substituting({(id(layer), "limit"): 9.0}):
        assert layer.limit == 9.0
    assert listener.reads == []
