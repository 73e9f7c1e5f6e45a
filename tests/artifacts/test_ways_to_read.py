"""CACHE-6: by whichever way code reads a value, a change of it changes the cached run, too."""

from __future__ import annotations

import linecache
import sys
import types
from typing import Any

import numpy as np
import pytest

import aotlite as al
from tests.artifacts.looked_up import cached

HELPER, MAIN = "way_helper", "way_main"
WAYS = {
    "a module's value": ("RATE = VALUE", "import way_helper\ndef f(x): return x * way_helper.RATE"),
    "a module's function": (
        "def g(x): return x * VALUE",
        "import way_helper\ndef f(x): return way_helper.g(x)",
    ),
    "a global of a module's function": (
        "RATE = VALUE\ndef g(x): return x * RATE",
        "import way_helper\ndef f(x): return way_helper.g(x)",
    ),
    "getattr of a module": (
        "RATE = VALUE",
        "import way_helper\nEND = 'TE'\ndef f(x): return x * getattr(way_helper, 'RA' + END)",
    ),
    "vars of a module": (
        "RATE = VALUE",
        "import way_helper\ndef f(x): return x * vars(way_helper)['RATE']",
    ),
    "the __dict__ of a module": (
        "RATE = VALUE",
        "import way_helper\ndef f(x): return x * way_helper.__dict__['RATE']",
    ),
    "an import inside": (
        "RATE = VALUE",
        "def f(x):\n    import way_helper\n    return x * way_helper.RATE",
    ),
    "a module's __getattr__": (
        "def __getattr__(name): return VALUE",
        "import way_helper\ndef f(x): return x * way_helper.any",
    ),
    "the default of a function that is looked into": (
        "",
        "def g(): pass\ng.__defaults__ = (VALUE,)\ndef f(x): return x * g.__defaults__[0]",
    ),
    "the text of a function that is looked into": (
        "",
        "def g(): 'a' * VALUE\ng.__doc__ = 'a' * VALUE\ndef f(x): return x * len(g.__doc__)",
    ),
    "an attribute of a function": ("", "def g(): pass\ng.k = VALUE\ndef f(x): return x * g.k"),
    "a cell of a decorator": (
        "def by(k):\n    def outer(g):\n        return lambda x: g(x) * k\n    return outer",
        "from way_helper import by\n@by(VALUE)\ndef g(x): return x + 1\ndef f(x): return g(x)",
    ),
    "a generator": (
        "",
        "def g():\n    yield 1\n    yield VALUE\n"
        "def f(x):\n    for k in g(): x = x * k\n    return x",
    ),
    "a context manager": (
        "",
        "import contextlib\n@contextlib.contextmanager\ndef g():\n    yield VALUE\n"
        "def f(x):\n    with g() as k: return x * k",
    ),
    "a cache": (
        "",
        "import functools\n@functools.lru_cache\ndef g(k): return k * VALUE\n"
        "def f(x): return x * g(3)",
    ),
    "a registry of functions": (
        "",
        "import functools\n@functools.singledispatch\ndef g(k): return 1\n"
        "g.register(int, {2: lambda k: 5, 3: lambda k: 6}[VALUE])\ndef f(x): return x * g(2)",
    ),
    "an abstract class": (
        "",
        "import abc\nclass A(abc.ABC): pass\nclass K: pass\nif VALUE == 3: A.register(K)\n"
        "k = K()\ndef f(x): return x * 2 if isinstance(k, A) else x * 3",
    ),
    "a base class": (
        "",
        "class P: pass\nclass A(P if VALUE == 2 else object): pass\na = A()\n"
        "def f(x): return x * 2 if isinstance(a, P) else x * 3",
    ),
    "a method of a base class": (
        "",
        "class A:\n    def m(self, x): return x * VALUE\n"
        "class B(A):\n    def m(self, x): return super().m(x)\nb = B()\ndef f(x): return b.m(x)",
    ),
    "an attribute that hides the class's": (
        "",
        "class A: k = 2\na = A()\na.__dict__.update({'k': 7} if VALUE == 3 else {})\n"
        "def f(x): return x * a.k",
    ),
    "a descriptor": (
        "",
        "class D:\n    def __get__(self, one, kind): return VALUE\n"
        "class K: d = D()\nk = K()\ndef f(x): return x * k.d",
    ),
    "a metaclass": (
        "",
        "class M(type):\n    def __getattr__(kind, name): return VALUE\n"
        "class K(metaclass=M): pass\ndef f(x): return x * K.any",
    ),
    "an operator": (
        "",
        "class V:\n    def __mul__(self, x): return x * VALUE\nv = V()\ndef f(x): return v * x",
    ),
    "a callable object": (
        "",
        "class V:\n    k = 1\n    def __call__(self, x): return x * self.k\n"
        "v = V()\nv.k = VALUE\ndef f(x): return v(x)",
    ),
    "an object that is made inside": (
        "",
        "class V:\n    def __init__(self): self.k = VALUE\ndef f(x): return x * V().k",
    ),
    "a dataclass that is made inside": (
        "",
        "import dataclasses\n@dataclasses.dataclass\nclass V:\n    k: int = VALUE\n"
        "def f(x): return x * V().k",
    ),
    "a slot": ("", "class P: __slots__ = ('k',)\np = P()\np.k = VALUE\ndef f(x): return x * p.k"),
    "an object in lists": (
        "",
        "class P: pass\np = P()\np.k = VALUE\nkept = [[p]]\ndef f(x): return x * kept[0][0].k",
    ),
    "attrgetter": (
        "",
        "import operator\nclass P: pass\np = P()\np.a = P()\np.a.b = VALUE\n"
        "def f(x): return x * operator.attrgetter('a.b')(p)",
    ),
    "a dictionary's __missing__": (
        "",
        "class D(dict):\n    def __missing__(self, key): return VALUE\nd = D()\n"
        "def f(x): return x * d['a']",
    ),
    "a context variable": (
        "",
        "import contextvars\nv = contextvars.ContextVar('v', default=VALUE)\n"
        "def f(x): return x * v.get()",
    ),
    "another thread": (
        "",
        "import threading\nclass W: v = VALUE\ndef f(x):\n    out = []\n"
        "    t = threading.Thread(target=lambda: out.append(W.v))\n    t.start()\n    t.join()\n"
        "    return x * out[0]",
    ),
    "a name that hides a builtin": (
        "",
        "if VALUE == 3:\n    def abs(x): return 5\ndef f(x): return x * abs(-2)",
    ),
    "code of exec": (
        "",
        "ns = {}\nexec('def g(x): return x * VALUE', ns)\ng = ns['g']\ndef f(x): return g(x)",
    ),
    "a field of a namedtuple": (
        "",
        "import collections\nNAMES = {2: 'a b', 3: 'b a'}[VALUE]\n"
        "P = collections.namedtuple('P', NAMES)(1., 2.)\ndef f(x): return x * P.a",
    ),
    "a pattern": (
        "",
        "class D: a, b, __match_args__ = 1., 3., {2: ('a', 'b'), 3: ('b', 'a')}[VALUE]\nd = D()\n"
        "def f(x):\n    match d:\n        case D(v): return x * v",
    ),
    "an attribute that a pattern names": (
        "",
        "class D: pass\nd = D()\nd.a = VALUE\n"
        "def f(x):\n    match d:\n        case D(a=v): return x * v",
    ),
    "a field of format": (
        "",
        "class P: pass\np = P()\np.k = VALUE\ndef f(x): return x * float('{0.k}'.format(p))",
    ),
    "a field of format_map": (
        "",
        "class P: pass\np = P()\np.k = VALUE\n"
        "def f(x): return x * float('{p.k}'.format_map({'p': p}))",
    ),
    "a field of a text that is found": (
        "",
        "class P: pass\np = P()\np.k = VALUE\n"
        "def f(x): return x * float(('{0.k}' if p else '{}').format(p))",
    ),
    "a field of an array": (
        "",
        "import numpy as np\nNAMES = {2: 'ab', 3: 'ba'}[VALUE]\n"
        "a = np.array([(1., 2.)], [(n, 'f8') for n in NAMES])\n"
        "def f(x): return x * float(a['a'][0])",
    ),
    "the names of a dtype": (
        "",
        "import numpy as np\nd = np.dtype([('a' * VALUE, 'f8')])\n"
        "def f(x): return x * len(d.names[0])",
    ),
    "a flag of an array": (
        "",
        "import numpy as np\na = np.ones(2)\na.flags.writeable = VALUE == 2\n"
        "def f(x): return x * (2 if a.flags.writeable else 3)",
    ),
    "what a view is of": (
        "",
        "import numpy as np\na = np.ones(3)[1:]\na.base[0] = VALUE\n"
        "def f(x): return x * float(a.base[0])",
    ),
    "how NumPy prints": (
        "",
        "import numpy as np\nnp.set_printoptions(precision=VALUE)\na = [np.ones(2) / 3]\n"
        "def f(x): return x * len(f'{a}')",
    ),
    "the print options of NumPy": (
        "",
        "import numpy as np\nnp.set_printoptions(precision=VALUE)\n"
        "def f(x): return x * np.get_printoptions()['precision']",
    ),
    "a text of a function": ("", "def f(x): return x * len(f.__doc__)\nf.__doc__ = 'a' * VALUE"),
    "an annotation": (
        "",
        "def f(x): return x * f.__annotations__['k']\nf.__annotations__['k'] = VALUE",
    ),
    "globals of a function": (
        "",
        "K = VALUE\ndef h(): pass\ndef f(x): return x * h.__globals__['K']",
    ),
    "the cell of a function": (
        "",
        "def by(k): return lambda: k\ng = by(VALUE)\n"
        "def f(x): return x * g.__closure__[0].cell_contents",
    ),
    "the subclasses of a class": (
        "",
        "class C: pass\nkept = [type('D', (C,), {}) for _ in range(VALUE)]\n"
        "def f(x): return x * len(C.__subclasses__())",
    ),
    "the name of a class": (
        "",
        "class C: pass\nC.__name__ = 'a' * VALUE\ndef f(x): return x * len(C.__name__)",
    ),
    "a value that is set in NumPy": (
        "",
        "import numpy as np\nnp.KK = VALUE\ndef f(x): return x * np.KK",
    ),
    "what NumPy does on errors": (
        "",
        "import numpy as np\nnp.seterr(over={2: 'warn', 3: 'ignore'}[VALUE])\n"
        "def f(x): return x * len(np.geterr()['over'])",
    ),
    "a value that is set in a module of aotlite": (
        "",
        "import aotlite as al\nal.nn.KK = VALUE\ndef f(x): return x * al.nn.KK",
    ),
    "a value that is set in aotlite": (
        "",
        "import aotlite as al\nal.KK = VALUE\ndef f(x): return x * al.KK",
    ),
    "a function of aotlite": (
        "",
        "import aotlite as al\nA = {2: al.sin, 3: al.cos}[VALUE]\ndef f(x): return A(x)",
    ),
    "a function of aotlite in a Module": (
        "",
        "import aotlite as al\nclass N(al.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.act = {2: al.nn.functional.silu, 3: al.nn.functional.gelu}[VALUE]\n"
        "    def forward(self, x): return self.act(x)\n"
        "n = N()\ndef f(x): return n(x)",
    ),
    "a method of tensors": (
        "",
        "import aotlite as al\nA = {2: al.Tensor.exp, 3: al.Tensor.neg}[VALUE]\n"
        "def f(x): return A(x)",
    ),
    "a function of a library that is made of one": (
        "",
        "import contextlib\ndef g2(): yield 2.0\ndef g3(): yield 3.0\n"
        "c = contextlib.contextmanager({2: g2, 3: g3}[VALUE])\ndel c.__wrapped__\n"
        "def f(x):\n    with c() as k: return x * k",
    ),
    "the number of parameters": (
        "",
        "import aotlite as al\nclass N(al.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.w = al.nn.Parameter(al.ones(2))\n"
        "        if VALUE == 3: self.v = al.nn.Parameter(al.ones(2))\n"
        "    def forward(self, x): return x * len(list(self.parameters()))\n"
        "n = N()\ndef f(x): return n(x)",
    ),
}


def loaded(way: str, value: int) -> Any:
    """The function `f` of a way, in modules of their own, with this value."""
    for name, text in zip((HELPER, MAIN), WAYS[way], strict=True):
        module, text = types.ModuleType(name), text.replace("VALUE", str(value))
        module.__file__ = f"/{name}.py"
        sys.modules[name] = module
        linecache.cache[module.__file__] = len(text), None, text.splitlines(True), module.__file__
        exec(compile(text, module.__file__, "exec"), module.__dict__)
    return module.f


@pytest.fixture
def libraries(monkeypatch):
    """What the ways set in libraries is as before afterwards."""
    for library in (np, al, al.nn):
        monkeypatch.setattr(library, "KK", None, raising=False)
    with np.printoptions(), np.errstate():
        yield


@pytest.mark.usefixtures("libraries")
@pytest.mark.rules("CACHE-6", "CACHE-7", "CACHE-8")
@pytest.mark.parametrize("way", WAYS)
def test_a_change_of_what_is_read_changes_the_cached_run(way, tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))
    before = cached(loaded(way, 2))(al.ones(2)).tolist()
    assert before == cached(loaded(way, 2))(al.ones(2)).tolist()
    fresh = al.compile(loaded(way, 3), backend="reference")(al.ones(2)).tolist()
    assert fresh != before
    assert fresh == cached(loaded(way, 3))(al.ones(2)).tolist()
