"""Programs that change the order of what a container holds, and read it: all combinations.

    CONTENTS   the things that the container holds, or its keys
    MADE       the container of these
    CHANGES    statements that change the order, by the kind of container
    READS      expressions of the order
    WAYS       lines that make the function `fn`, in which the container is `S`

Used by `test_cap_order`. `python -m tests.rules.helpers.order_forms 3000` prints how many of that
many combinations are refused, do what eager does, or differ silently. Rule: CAP-14.
"""

from __future__ import annotations

import collections
import random
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import aotlite as al

PRELUDE = """
import collections, copy, enum, functools, types
import numpy as np
import aotlite as al
class Holder: pass
class Name:
    def __init__(self, text): self.text = text
    def __hash__(self): return hash(self.text)
    def __eq__(self, other): return self.text == other.text
class Side(enum.Enum):
    L = "l"; R = "r"; M = "m"
def make(k):
    def act(x): return x * k
    return act
def factory(k):
    class Made:
        scale = k
    return Made
arrays = al.ones(1).device.arrays
DEVICES = [al.Device(name, arrays) for name in ("first", "second", "third")]
p, q, r = object(), object(), object()
a, b, c = Name("a"), Name("b"), Name("c")
KNOWN = []
def number(thing):
    for at, each in enumerate(KNOWN):
        if each is thing: return at + 2
    raise KeyError(thing)
"""

CONTENTS = {
    "numbers": "2, 3, 4",
    "texts": "'a', 'b', 'c'",
    "dtypes": "al.float16, al.float32, al.float64",
    "numpy's dtypes": "np.dtype('f2'), np.dtype('f4'), np.dtype('f8')",
    "devices": "DEVICES[0], DEVICES[1], DEVICES[2]",
    "ufuncs": "np.add, np.subtract, np.multiply",
    "builtins": "len, max, min",
    "methods of builtins": "str.upper, str.lower, str.title",
    "functions": "make, factory, number",
    "closures": "make(2), make(3), make(4)",
    "classes": "Holder, Name, Side",
    "classes of a factory": "factory(2), factory(3), factory(4)",
    "enums": "Side.L, Side.R, Side.M",
    "objects": "p, q, r",
    "objects with hash": "a, b, c",
    "empty objects": "Holder(), Holder(), Holder()",
    "mixed": "None, True, Ellipsis",
    "partials": "*[functools.partial(make, k) for k in (2, 3, 4)],",
    "Modules": "al.nn.ReLU(), al.nn.ReLU(), al.nn.ReLU()",
    "slices": "slice(0, 1), slice(0, 2), slice(0, 3)",
    "tensors": "al.tensor([2.0]), al.tensor([3.0]), al.tensor([4.0])",
    "arrays": "np.ones(2), np.ones(3), np.ones(4)",
    "frozensets": "frozenset([1]), frozenset([2]), frozenset([3])",
    "tuples": "(1,), (2,), (3,)",
    "generators": "(i for i in [1]), (i for i in [2]), (i for i in [3])",
}

MADE = {
    "dict": "dict.fromkeys(KNOWN, 1)",
    "OrderedDict": "collections.OrderedDict.fromkeys(KNOWN, 1)",
    "Counter": "collections.Counter(KNOWN)",
    "dict of values": "dict(enumerate(KNOWN))",
    "list": "list(KNOWN)",
    "deque": "collections.deque(KNOWN)",
    "UserDict": "collections.UserDict.fromkeys(KNOWN, 1)",
    "UserList": "collections.UserList(KNOWN)",
    "array": "np.array([*KNOWN, None], dtype=object)[:-1]",
}
_KEYS = {
    "an item put back": "k = next(iter(S)); S[k] = S.pop(k)",
    "a known item put back": "S[KNOWN[0]] = S.pop(KNOWN[0])",
    "del and set": "k = next(iter(S)); del S[k]; S[k] = 1",
    "popitem": "k, v = S.popitem(); o = dict(S); S.clear(); S[k] = v; S.update(o)",
    "rebuilt": "o = list(S.items())[::-1]; S.clear(); S.update(o)",
}
_ORDERED = {
    "move_to_end": "S.move_to_end(next(iter(S)))",
    "move a known to the end": "S.move_to_end(KNOWN[0])",
    "popitem(False)": "k, v = S.popitem(last=False); S[k] = v",
}
_ITEMS = {
    "reverse": "S.reverse()",
    "first to the end": "S.append(S.pop(0))",
    "last to the front": "S.insert(0, S.pop())",
    "swap": "S[0], S[1] = S[1], S[0]",
    "slices": "S[:] = S[1:] + S[:1]",
    "extend": "k = S[0]; del S[0]; S.extend([k])",
}
_QUEUE = {
    "rotate": "S.rotate(1)",
    "popleft": "S.append(S.popleft())",
    "appendleft": "S.appendleft(S.pop())",
    "reverse": "S.reverse()",
    "swap": "S[0], S[1] = S[1], S[0]",
}
_VALUES = {
    "swap": "S[0], S[1] = S[1], S[0]",
    "update": "S.update({0: S[1], 1: S[0]})",
    "rotated": "o = list(S.values()); S.update(enumerate(o[1:] + o[:1]))",
}
_ARRAY = {"swap": "S[[0, 1]] = S[[1, 0]]", "reversed": "S[:] = S[::-1].copy()"}
CHANGES = {
    "dict": _KEYS,
    "OrderedDict": {**_KEYS, **_ORDERED},
    "Counter": {k: v for k, v in _KEYS.items() if k not in ("rebuilt", "popitem")},
    "dict of values": _VALUES,
    "list": _ITEMS,
    "deque": _QUEUE,
    "UserDict": _KEYS,
    "UserList": _ITEMS,
    "array": _ARRAY,
}
_READ_KEYS = {
    "the first": "number(next(iter(S)))",
    "a list": "number(list(S)[0])",
    "items": "number(list(S.items())[0][0])",
    "a loop": "number([k for k in S][0])",
    "a star": "number([*S][0])",
    "reversed": "number(next(reversed(S)))",
    "min by place": "number(min(S, key=lambda k: 0))",
    "enumerate": "number(dict(enumerate(S))[0])",
    "a copy": "number(next(iter(S.copy())))",
    "keys": "number(tuple(S.keys())[-1])",
}
_READ_ITEMS = {
    "an item": "number(S[0])",
    "the last": "number(S[-1])",
    "a loop": "number([k for k in S][0])",
    "a tuple": "number(tuple(S)[0])",
    "unpacked": "number((lambda k, *_: k)(*S))",
    "reversed": "number(next(reversed(S)))",
    "index": "number(KNOWN[list(map(id, S)).index(id(KNOWN[0]))])",
}
_READ_VALUES = {
    "an item": "number(S[0])",
    "get": "number(S.get(0))",
    "values": "number(list(S.values())[0])",
}
READS = {
    "dict": _READ_KEYS,
    "OrderedDict": _READ_KEYS,
    "Counter": _READ_KEYS,
    "UserDict": {k: v for k, v in _READ_KEYS.items() if k != "reversed"},
    "dict of values": _READ_VALUES,
    "list": _READ_ITEMS,
    "deque": _READ_ITEMS,
    "UserList": _READ_ITEMS,
    "array": {
        "an item": "number(S[0])",
        "the last": "number(S[-1])",
        "a loop": "number([k for k in S][0])",
    },
}
WAYS = {
    "a closure": (
        "def outer(S):\n    def fn(x):\n        {inner}\n    return fn\nfn = outer(made)"
    ),
    "a global": ("S = made\ndef fn(x):\n    {body}"),
    "a default": ("def fn(x, S=made):\n    {body}"),
    "a keyword's default": ("def fn(x, *, S=made):\n    {body}"),
    "a default of a helper": ("def go(x, S=made):\n    {body}\ndef fn(x): return go(x)"),
    "an attribute": ("h = Holder(); h.s = made\ndef fn(x):\n    S = h.s\n    {body}"),
    "an attribute, named": ("h = Holder(); h.S = made\ndef fn(x):\n    {named}"),
    "self": (
        "class C:\n    def __init__(self): self.s = made\n    def go(self, x):\n"
        "        S = self.s; {inner}\nfn = C().go"
    ),
    "a Module": (
        "class N(al.nn.Module):\n"
        "    def __init__(self):\n        super().__init__(); self.s = made\n"
        "    def forward(self, x):\n        S = self.s; {inner}\nfn = N()"
    ),
    "a Module in a closure": (
        "class N(al.nn.Module):\n"
        "    def __init__(self):\n        super().__init__(); self.s = made\n"
        "    def forward(self, x):\n        S = self.s; {inner}\nn = N()\nfn = lambda x: n(x)"
    ),
    "a class": ("class C:\n    s = made\ndef fn(x):\n    S = C.s\n    {body}"),
    "a class, of an instance": (
        "class C:\n    s = made\n    def go(self, x):\n        S = self.s; {inner}\nfn = C().go"
    ),
    "a dict": ("d = {{'s': made}}\ndef fn(x):\n    S = d['s']\n    {body}"),
    "a list": ("d = [made]\ndef fn(x):\n    S = d[0]\n    {body}"),
    "a namespace": ("d = types.SimpleNamespace(s=made)\ndef fn(x):\n    S = d.s\n    {body}"),
    "an attribute of a function": (
        "def go(): pass\ngo.s = made\ndef fn(x):\n    S = go.s\n    {body}"
    ),
    "a partial": ("def go(S, x):\n    {body}\nfn = functools.partial(go, made)"),
    "a getter": ("def get(): return made\ndef fn(x):\n    S = get()\n    {body}"),
    "slots": (
        "class C:\n    __slots__ = ('s',)\nh = C(); h.s = made\ndef fn(x):\n    S = h.s\n    {body}"
    ),
    "a property": (
        "class C:\n    def __init__(self): self._s = made\n"
        "    @property\n    def s(self): return self._s\n"
        "h = C()\ndef fn(x):\n    S = h.s\n    {body}"
    ),
}


class Case(NamedTuple):
    """One combination."""

    contents: str
    kind: str
    change: str
    read: str
    way: str

    def function(self) -> Callable[[Any], Any]:
        """The function of the program, with a container of its own."""
        names: dict[str, Any] = {"__name__": "users_program"}
        exec(PRELUDE, names)
        exec(f"KNOWN += [{CONTENTS[self.contents]}]\nmade = {MADE[self.kind]}", names)
        text = f"{CHANGES[self.kind][self.change]}; return x * {READS[self.kind][self.read]}"
        way = WAYS[self.way]
        bodies = {
            "body": text.replace("; ", "\n    "),
            "inner": text.replace("; ", "\n        "),
            "named": re.sub(r"\bS\b", "h.S", text).replace("; ", "\n    "),
        }
        exec(way.format(**bodies), names)
        function: Callable[[Any], Any] = names["fn"]
        return function


_KEYED = ("dict", "OrderedDict", "Counter", "UserDict")
_NO_KEYS = ("slices", "arrays")


def cases() -> list[Case]:
    """All combinations."""
    return [
        Case(contents, kind, change, read, way)
        for kind in MADE
        for change in CHANGES[kind]
        for read in READS[kind]
        for contents in CONTENTS
        for way in WAYS
        if kind not in _KEYED or contents not in _NO_KEYS
    ]


def results(function: Callable[[Any], Any]) -> list[Any]:
    return [function(al.tensor([value])).tolist() for value in (1.0, 2.0, 3.0)]


def outcome(case: Case) -> str:
    """How three compiled calls compare with three eager ones: refused, equal, silent."""
    expected = results(case.function())
    try:
        found = results(al.compile(case.function(), backend="reference"))
    except al.UnsupportedError:
        return "refused"
    return "equal" if expected == found else "silent"


if __name__ == "__main__":
    some = random.Random(0).sample(cases(), int(sys.argv[1]))
    print(dict(collections.Counter(map(outcome, some))))
