"""Forms of writing what is read, and ways in which the method that does it is reached.

    FORMS   what `__init__` makes, what the method writes, and the number that it reads
    WAYS    the decorator of the method, and the lines that make the function `fn` of it

Used by `test_cap_programs`. Rule: CAP-14.
"""

from __future__ import annotations

PRELUDE = """
import collections, contextlib, dataclasses, functools, itertools, operator, types, weakref
import aotlite as al
def deco(f):
    @functools.wraps(f)
    def inner(*a, **k):
        return f(*a, **k)
    return inner
def plain(f):
    def inner(*a, **k):
        return f(*a, **k)
    return inner
class CallableDeco:
    def __init__(self, f): self.f = f
    def __call__(self, *a, **k): return self.f(*a, **k)
    def __get__(self, o, t=None): return types.MethodType(self, o)
class Holder: pass
"""

FORMS = {
    "an attribute": ("self.n = 0", "self.n += 1", "self.n"),
    "an attribute, read and stored": ("self.n = 0", "self.n = self.n + 1", "self.n"),
    "setattr": ("self.n = 0", "setattr(self, 'n', self.n + 1)", "self.n"),
    "object.__setattr__": ("self.n = 0", "object.__setattr__(self, 'n', self.n + 1)", "self.n"),
    "its dict": ("self.n = 0", "self.__dict__['n'] += 1", "self.n"),
    "vars": ("self.n = 0", "vars(self)['n'] = self.n + 1", "self.n"),
    "vars, read too": ("self.n = 0", "vars(self)['n'] = vars(self)['n'] + 1", "vars(self)['n']"),
    "its dict, read too": ("self.n = 0", "self.__dict__['n'] += 1", "self.__dict__['n']"),
    "an update of its dict": ("self.n = 0", "self.__dict__.update(n=self.n + 1)", "self.n"),
    "an attribute of an attribute": (
        "self.h = Holder(); self.h.n = 0",
        "self.h.n += 1",
        "self.h.n",
    ),
    "a list": ("self.l = []", "self.l.append(1)", "len(self.l)"),
    "a list, passed on": ("self.l = []", "self.l.append(2)", "sum(self.l)"),
    "an item": ("self.l = [0]", "self.l[0] += 1", "self.l[0]"),
    "a dict": ("self.d = {'n': 0}", "self.d['n'] += 1", "self.d['n']"),
    "operator.setitem": (
        "self.d = {'n': 0}",
        "operator.setitem(self.d, 'n', self.d['n'] + 1)",
        "self.d['n']",
    ),
    "a deque": ("self.q = collections.deque()", "self.q.append(1)", "len(self.q)"),
    "a set": ("self.s = set()", "self.s.add(len(self.s))", "len(self.s)"),
    "a Counter": ("self.c = collections.Counter()", "self.c['a'] += 1", "self.c['a']"),
    "a defaultdict": ("self.c = collections.defaultdict(int)", "self.c['a'] += 1", "self.c['a']"),
    "a class": ("type(self).n = 0", "type(self).n += 1", "type(self).n"),
    "a class, read of an instance": ("type(self).n = 0", "type(self).n += 1", "self.n"),
    "a count": ("self.it = itertools.count(1)", "self.v = next(self.it)", "self.v"),
    "a count, read at once": ("self.it = itertools.count(1)", "pass", "next(self.it)"),
    "a cycle": ("self.it = itertools.cycle([1,2,3])", "pass", "next(self.it)"),
    "an iterator of a list": ("self.it = iter([1,2,3])", "pass", "next(self.it)"),
    "a generator": ("self.it = (i for i in range(1,9))", "pass", "next(self.it)"),
    "a lambda": ("self.n = 0", "(lambda: setattr(self, 'n', self.n + 1))()", "self.n"),
    "a comprehension": ("self.n = 0", "[setattr(self, 'n', self.n + 1) for _ in (1,)]", "self.n"),
    "a pop": ("self.l = [3,2,1]", "pass", "self.l.pop()"),
    "a namespace": ("self.ns = types.SimpleNamespace(n=0)", "self.ns.n += 1", "self.ns.n"),
    "a UserDict": ("self.u = collections.UserDict(n=0)", "self.u['n'] += 1", "self.u['n']"),
    "a bytearray": ("self.b = bytearray(b'\\0')", "self.b[0] += 1", "self.b[0]"),
    "a global": ("global G; G = 0", "global G; G += 1", "G"),
    "an attribute of a function": ("helper.n = 0", "helper.n += 1", "helper.n"),
    "getattr": ("self.n = 0", "self.n += 1", "getattr(self, 'n')"),
    "operator.iadd": ("self.n = 0", "self.n = operator.iadd(self.n, 1)", "self.n"),
    "attrgetter": ("self.n = 0", "self.n += 1", "operator.attrgetter('n')(self)"),
    "a property": ("self._n = 0", "self.shown = self.shown + 1", "self.shown"),
    "the setter of a property": ("self._n = 0", "self.added = 1", "self.added"),
    "a closure": ("self.bump = make_counter()", "pass", "self.bump()"),
    "a flag": ("self.flag = False", "self.flag = not self.flag", "(1 if self.flag else 2)"),
    "a first call": ("self.first = True", "y0 = 5 if self.first else 7; self.first = False", "y0"),
    "a partial": (
        "self.l=[]; self.p = functools.partial(self.l.append, 1)",
        "self.p()",
        "len(self.l)",
    ),
    "a bound method of a list": ("self.l=[]; self.p = self.l.append", "self.p(1)", "len(self.l)"),
    "a last value": (
        "self.last = None",
        "r = 1.0 if self.last is None else 2.0; self.last = 3",
        "r",
    ),
}

SOURCE = """
def helper(): pass
def make_counter():
    n = 0
    def bump():
        nonlocal n
        n += 1
        return n
    return bump
class C:
    def __init__(self):
        {first}
    {decorator}
    def step(self, x):
        {write}
        return x * {read}
    @property
    def shown(self): return self._n
    @shown.setter
    def shown(self, value): self._n = value
    @property
    def added(self): return self._n
    @added.setter
    def added(self, value): self._n += value
obj = C()
"""

WAYS = {
    "a bound method": ("", "fn = obj.step"),
    "functools.wraps": ("@deco", "fn = obj.step"),
    "a plain wrapper": ("@plain", "fn = obj.step"),
    "two decorators": ("@deco\n    @plain", "fn = obj.step"),
    "a decorator that is a class": ("@CallableDeco", "fn = obj.step"),
    "partialmethod": ("", "C.pm = functools.partialmethod(C.step); fn = obj.pm"),
    "a partial": ("", "fn = functools.partial(obj.step)"),
    "a partial of the function": ("", "fn = functools.partial(C.step, obj)"),
    "a partial of a wrapper": ("@deco", "fn = functools.partial(C.step, obj)"),
    "a lambda": ("", "fn = lambda x: obj.step(x)"),
    "a lambda, and functools.wraps": ("@deco", "fn = lambda x: obj.step(x)"),
    "a lambda, and a wrapper": ("@plain", "fn = lambda x: obj.step(x)"),
    "a closure": ("@deco", "fn = (lambda o: lambda x: o.step(x))(obj)"),
    "a wrapped bound method": ("", "fn = deco(obj.step)"),
    "a plainly wrapped bound method": ("", "fn = plain(obj.step)"),
    "a callable around it": ("", "fn = CallableDeco(obj.step)"),
    "a callable object": ("", "C.__call__ = C.step; fn = obj"),
    "a callable object, decorated": ("@deco", "C.__call__ = C.step; fn = obj"),
    "a default": ("@plain", "fn = lambda x, o=obj: o.step(x)"),
    "a list": ("@plain", "objs = [obj]; fn = lambda x: objs[0].step(x)"),
    "an attribute": ("", "h = Holder(); h.o = obj; fn = lambda x: h.o.step(x)"),
    "an attribute, and a decorator": (
        "@deco",
        "h = Holder(); h.o = obj; fn = lambda x: h.o.step(x)",
    ),
    "getattr": ("", "fn = lambda x: getattr(obj, 'step')(x)"),
    "a bound method in a list": ("", "ms = [obj.step]; fn = lambda x: ms[0](x)"),
    "methodcaller": ("", "mc = operator.methodcaller; fn = lambda x: mc('step', x)(obj)"),
    "map": ("", "fn = lambda x: list(map(obj.step, [x]))[0]"),
    "reduce": ("", "fn = lambda x: functools.reduce(lambda a, o: o.step(a), [obj], x)"),
    "a static method": (
        "",
        "S = type('S', (), {'f': staticmethod(lambda x: obj.step(x))}); fn = S.f",
    ),
    "a class method": (
        "",
        "S = type('S', (), {'f': classmethod(lambda cls, x: obj.step(x))}); fn = S.f",
    ),
    "an lru_cache": ("", "get = functools.lru_cache(lambda: obj); fn = lambda x: get().step(x)"),
    "a factory": ("", "get = lambda: obj; fn = lambda x: get().step(x)"),
    "singledispatch": (
        "",
        "sd = functools.singledispatch(lambda x: obj.step(x)); fn = lambda x: sd(x)",
    ),
    "a context manager": (
        "",
        "@contextlib.contextmanager\n"
        "def cm():\n"
        "    yield obj\n"
        "def fn(x):\n"
        "    with cm() as o:\n"
        "        return o.step(x)",
    ),
    "a class attribute": (
        "",
        "M = type('M', (type,), {}); K = M('K', (), {'o': obj}); fn = lambda x: K.o.step(x)",
    ),
    "__getattr__": (
        "",
        "class P:\n"
        "    def __getattr__(self, name): return getattr(obj, name)\n"
        "p = P()\n"
        "fn = lambda x: p.step(x)",
    ),
    "super": (
        "",
        "class D(C):\n    def step(self, x): return super().step(x)\nobj = D(); fn = obj.step",
    ),
    "super, and decorators": (
        "@deco",
        "class D(C):\n"
        "    @deco\n"
        "    def step(self, x): return super().step(x)\n"
        "obj = D(); fn = obj.step",
    ),
    "globals()": ("", "fn = lambda x: globals()['obj'].step(x)"),
    "a weak reference": ("", "import weakref; w = weakref.ref(obj); fn = lambda x: w().step(x)"),
    "a mapping proxy": (
        "",
        "mp = types.MappingProxyType({'o': obj}); fn = lambda x: mp['o'].step(x)",
    ),
    "a namespace": ("", "ns = types.SimpleNamespace(o=obj); fn = lambda x: ns.o.step(x)"),
    "a ChainMap": ("", "mp = collections.ChainMap({'o': obj}); fn = lambda x: mp['o'].step(x)"),
    "a named tuple": (
        "",
        "NT = collections.namedtuple('NT', 'o'); nt = NT(obj); fn = lambda x: nt.o.step(x)",
    ),
    "a dataclass": (
        "",
        "DC = dataclasses.make_dataclass('DC', ['o']); nt = DC(obj); fn = lambda x: nt.o.step(x)",
    ),
    "a Module": (
        "",
        "class Net(al.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.o = obj\n"
        "    def forward(self, x): return self.o.step(x)\n"
        "fn = Net()",
    ),
    "a Module in a closure": (
        "",
        "class Net(al.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.o = obj\n"
        "    def forward(self, x): return self.o.step(x)\n"
        "net = Net()\n"
        "fn = lambda x: net(x)",
    ),
}
