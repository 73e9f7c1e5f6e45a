"""PRG-2, PRG-4, REC-11: containers of arguments and results come back from a file."""

from __future__ import annotations

import copy
import json
import pickle
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

import optree
import pytest

import aotlite as al
from aotlite.export import program
from aotlite.ir.errors import ArgumentError, FormatError, UnsupportedError
from aotlite.pipeline.record_files import Document, decoded, encoded
from aotlite.pipeline.record_files.containers import MOST_FIELDS, MOST_KINDS
from aotlite.stages.records.capture import Containers
from tests.programs.test_programs import through_a_file
from tests.rules.test_pyx_containers import GLOBAL, parts, whole

x = al.ones(2)


class Pair(NamedTuple):
    """Two values, with a method that no file has."""

    first: Any
    second: Any

    def both(self) -> Any:
        return self.first + self.second


class Other(NamedTuple):
    """A named tuple of another name."""

    first: Any
    second: Any


RESULTS: dict[str, Callable[[Any], Any]] = {
    "a named tuple": lambda x: Pair(x * 2, 3),
    "one in another": lambda x: Pair([Pair(x + 1, None)], {"a": x}),
    "a defaultdict": lambda x: defaultdict(list, a=x + 1),
    "without a factory": lambda x: defaultdict(None, a=x + 1),
    "a bounded deque": lambda x: deque([x + 1, 2], maxlen=3),
    "an OrderedDict": lambda x: OrderedDict(b=x + 1, a=1),
}


def plain(value: Any) -> Any:
    """Containers by name, with lists for tensors."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value).__name__, value._fields, [plain(each) for each in value]
    if isinstance(value, dict):
        factory = getattr(value, "default_factory", None)
        return type(value), factory, [(key, plain(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return type(value), getattr(value, "maxlen", None), [plain(each) for each in value]
    return value.tolist() if isinstance(value, al.Tensor) else value


@pytest.mark.rules("PRG-2", "REC-11")
@pytest.mark.parametrize("name", RESULTS)
def test_results_come_in_the_containers_of_eager(name: str) -> None:
    made = through_a_file(program(RESULTS[name], x))
    found = made(x)
    assert plain(RESULTS[name](x)) == plain(found)
    assert type(found) is type(made(x * 2))
    assert plain(found) == plain(copy.deepcopy(found))


@pytest.mark.rules("PRG-2", "PRG-4", "REC-11")
def test_named_tuple_among_arguments_is_compared_by_name_and_fields() -> None:
    """A file has no method of the class, so a call may pass any class of the name and fields."""
    captured = program(lambda pair: pair.both(), Pair(x, x * 2))
    made = through_a_file(captured)
    make: Any = namedtuple
    Twin = make("Pair", ["first", "second"])
    y = x * 1
    for given in (Pair(x, y), Twin(x, y), Twin(first=x, second=y)):
        assert [2.0, 2.0] == made(given).tolist()
    for wrong in (Other(x, y), (x, y), [x, y], Pair(x, [y])):
        with pytest.raises(ArgumentError, match=r"expected \(Pair\(first=_, second=_\)\)"):
            made(wrong)
    with pytest.raises(ArgumentError, match="expected containers of the classes that"):
        captured(Twin(x, y))  # in this process the class counts, whose methods have run
    again = through_a_file(made)
    assert [2.0, 2.0] == again(Pair(x, y)).tolist()


@pytest.mark.rules("REC-11")
def test_named_tuples_of_a_file_are_pickled_by_their_fields() -> None:
    found = through_a_file(program(lambda x: Pair(1, 2), x))(x)
    assert (1, 2) == pickle.loads(pickle.dumps(found)) == found
    assert type(found) is type(pickle.loads(pickle.dumps(found)))


class Registered:
    """A class that is registered as a container."""

    def __init__(self, value: Any) -> None:
        self.value = value


KIND: Any = Registered
optree.register_pytree_node(KIND, parts, whole, namespace=GLOBAL)


@pytest.mark.rules("PRG-10", "REC-4")
def test_registered_containers_are_refused_with_advice() -> None:
    for made in (program(Registered, x), program(lambda each: each.value * 2, Registered(x))):
        with pytest.raises(UnsupportedError, match="a container is a Registered, expected a tup"):
            through_a_file(made)


def read(tree: Any) -> Any:
    """The containers of a document with this tree."""
    pair: Any = (1, 2)
    text = encoded(Containers(optree.tree_structure(pair, none_is_leaf=True))).text
    mark = json.dumps({"tuple": [0, 0]}, separators=(",", ":"))
    assert mark in text
    return decoded(Document(text.replace(mark, json.dumps(tree)))).root.spec


HOSTILE: dict[str, Any] = {
    "a keyword": {"named": ["P", ["def"], [0]]},
    "no identifier": {"named": ["P", ["a: __import__('os')"], [0]]},
    "a name that is none": {"named": ["P, x=1", ["a"], [0]]},
    "a field twice": {"named": ["P", ["a", "a"], [0, 0]]},
    "a hidden field": {"named": ["P", ["_replace"], [0]]},
    "fewer items": {"named": ["P", ["a", "b"], [0]]},
    "too many fields": {
        "named": ["P", [f"a{k}" for k in range(MOST_FIELDS + 1)], [0] * (MOST_FIELDS + 1)]
    },
    "too many classes": {"list": [{"named": [f"P{k}", [], []]} for k in range(MOST_KINDS + 1)]},
    "another factory": {"defaultdict": ["eval", []]},
    "more than there is room": {"bounded": [1, [0, 0]]},
    "room below zero": {"bounded": [-1, []]},
    "a number as a field": {"named": ["P", [1], [0]]},
}


@pytest.mark.rules("REC-2", "REC-6", "REC-11")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_containers_are_refused(name: str) -> None:
    with pytest.raises(FormatError):
        read(HOSTILE[name])


@pytest.mark.rules("REC-11")
def test_fields_by_position_are_read() -> None:
    """`namedtuple(rename=True)` names fields `_0`."""
    assert 2 == read({"named": ["P", ["_0", "b"], [0, 0]]}).num_leaves
