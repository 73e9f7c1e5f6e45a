"""PYX-8: containers of results come back as in eager."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optree
import pytest

import aotlite as al
from aotlite.export import aot_export_module, load, program, to_python
from tests.python_export.comparison import module_of


class Pair(NamedTuple):
    first: Any
    second: Any


Other: Any = collections.namedtuple("Other", ["left", "right"])
Other.__name__ = "Pair"
Numbered = collections.namedtuple("Numbered", ["a", "class"], rename=True)


@dataclasses.dataclass(frozen=True)
class Output:
    loss: Any
    more: Any


@dataclasses.dataclass
class Computed:
    loss: Any

    def __post_init__(self) -> None:
        self.loss = self.loss * 2


@dataclasses.dataclass
class Checked:
    loss: Any

    def __post_init__(self) -> None:
        assert self.loss is not None


GLOBAL: Any = vars(optree.registry)["__GLOBAL_NAMESPACE"]


def parts(value: Any) -> Any:
    return tuple(vars(value).values()), type(value), tuple(vars(value))


def whole(kind: Any, children: Any) -> Any:
    return kind(*children)


for each in (Output, Computed, Checked):
    kind: Any = each
    optree.register_pytree_node(kind, parts, whole, namespace=GLOBAL)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "named tuples": lambda x: (Pair(x + 1, x), Other(x * 2, 3), Pair(x, None), Numbered(x, 1)),
    "keys in order": lambda x: {"b": x + 1, "a": {2: x, 1: [x * 2]}, (1, "c"): ()},
    "ordered": lambda x: collections.OrderedDict(b=x + 1, a=2),
    "default": lambda x: collections.defaultdict(list, b=x + 1, a=2),
    "deque": lambda x: collections.deque([x + 1, 2], maxlen=3),
    "dataclass": lambda x: Output({"z": x.sum(), "y": 2}, [x]),
    "of an op": lambda x: x.max(0),
}


def kinds(value: Any) -> Any:
    """The containers, with the names of their classes, fields and keys, and numbers for leaves."""
    if isinstance(value, (np.ndarray, al.Tensor)):
        return value.tolist()
    fields = getattr(type(value), "_fields", None) or getattr(value, "__dataclass_fields__", None)
    if fields is not None:
        return type(value).__name__, [(each, kinds(getattr(value, each))) for each in fields]
    if isinstance(value, dict):
        factory = getattr(value, "default_factory", None)
        return type(value).__name__, factory, [(k, kinds(of)) for k, of in value.items()]
    if isinstance(value, (tuple, list, collections.deque)):
        return type(value).__name__, getattr(value, "maxlen", None), [kinds(each) for each in value]
    return value


@pytest.mark.rules("PYX-8")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_containers_come_back_as_in_eager(name: str) -> None:
    def body(x: Any) -> Any:
        return FUNCTIONS[name](x)

    file = module_of(al.compile(body).to_python(args=(al.tensor([2.0, 1.0]),)))
    found = file.body(np.array([2.0, 1.0], np.float32))
    assert kinds(found) == kinds(body(al.tensor([2.0, 1.0])))


@pytest.mark.rules("PYX-8", "PYX-13")
def test_containers_come_back_from_saved_and_exported_programs(tmp_path: Any) -> None:
    def body(x: Any) -> Any:
        return {"b": (x + 1, x), "a": [x.max()]}

    class Body(al.nn.Module):
        def forward(self, x: Any) -> Any:
            return ({"b": x + 1, "a": x * 2},)

    x = np.array([2.0, 1.0], np.float32)
    program(body, al.ones(2)).save(tmp_path / "body.aotlite")
    file = module_of(load(tmp_path / "body.aotlite").to_python())
    assert kinds(file.body(x)) == kinds(body(al.from_numpy(x)))
    file = module_of(to_python(*aot_export_module(Body(), (al.ones(2),))))
    assert list(file.Body(x, state={})[0]) == ["b", "a"]


@pytest.mark.rules("PYX-8", "PYX-2")
def test_a_class_has_a_name_of_its_own_in_the_file() -> None:
    def Pair_(Pair: Any) -> Any:
        return Other(Pair + 1, Pair)

    text = al.compile(Pair_).to_python(args=(al.ones(1),))
    found = module_of(text).Pair_(np.ones(1, np.float32))
    assert (type(found).__name__, found.left.item()) == ("Pair", 2.0)


@pytest.mark.rules("PYX-9")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Computed, "the containers of the results compute with them"),
        (Checked, "Checked, in which results are, computes fields itself"),
    ],
)
def test_a_dataclass_that_computes_its_fields_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(al.UnsupportedError, match=text):
        al.compile(lambda x: kind(x + 1)).to_python(args=(al.ones(1),))
