"""More programs that change what they read: Python's ways to hold state, one each.

Each is the body of a function that returns the one to compile. Used by `test_cap_programs`.
Rule: CAP-14.
"""

from __future__ import annotations

PROGRAMS = r"""
### setitem object
class Box:
    def __init__(self): self.d = {}
    def __setitem__(self, k, v): self.d[k] = v
    def __getitem__(self, k): return self.d.get(k, 0)
b = Box()
def f(x):
    b["n"] = b["n"] + 1
    return x * b["n"]
return f
### iadd object
class Acc:
    def __init__(self): self.v = 0
    def __iadd__(self, o): self.v += o; return self
    def __float__(self): return float(self.v)
a = Acc()
def f(x):
    nonlocal a
    a += 1
    return x * float(a)
return f
### dict subclass attr
class D(dict):
    def __init__(self): super().__init__(); self.hits = 0
    def __missing__(self, k): self.hits += 1; return self.hits
d = D()
def f(x): return x * d["a"]
return f
### singleton new
class S:
    made = 0
    def __new__(cls): cls.made += 1; return super().__new__(cls)
def f(x):
    S(); return x * S.made
return f
### metaclass call
class M(type):
    def __call__(cls, *a): cls.n = getattr(cls, "n", 0) + 1; return super().__call__(*a)
class A(metaclass=M): pass
def f(x):
    A(); return x * A.n
return f
### metaclass attribute
class M(type):
    n = 0
    @property
    def count(cls): M.n += 1; return M.n
class A(metaclass=M): pass
def f(x): return x * A.count
return f
### init subclass
class Base:
    kinds = []
    def __init_subclass__(cls, **k): Base.kinds.append(cls.__name__)
def f(x):
    class K(Base): pass
    return x * len(Base.kinds)
return f
### class getitem
class G:
    n = 0
    def __class_getitem__(cls, k): cls.n += 1; return cls.n
def f(x): return x * G[0]
return f
### try attribute
class A: pass
a = A()
def f(x):
    try: a.n
    except AttributeError: a.n = 5; return x * 2
    return x * 3
return f
### hasattr
class A: pass
a = A()
def f(x):
    if not hasattr(a, "n"): a.n = 5; return x * 2
    return x * 3
return f
### delattr
class A: pass
a = A(); a.n = 1
def f(x):
    if hasattr(a, "n"): del a.n; return x * 2
    return x * 3
return f
### pop default
d = {"k": 1}
def f(x): return x * d.pop("k", 7)
return f
### popitem
d = {"a": 1, "b": 2, "c": 3}
def f(x): return x * d.popitem()[1]
return f
### tuple grows
class A: pass
a = A(); a.t = ()
def f(x):
    a.t = a.t + (1,)
    return x * len(a.t)
return f
### set union
class A: pass
a = A(); a.s = set()
def f(x):
    a.s |= {len(a.s)}
    return x * len(a.s)
return f
### slice assignment
l = [1, 2, 3]
def f(x):
    l[:] = l[1:] + l[:1]
    return x * l[0]
return f
### del item
l = [1, 2, 3, 4]
def f(x):
    k = l[0]
    del l[0]
    return x * k
return f
### rebound slice
l = [1, 2, 3, 4]
def f(x):
    nonlocal l
    l = l[1:]
    return x * l[0]
return f
### multiply list
l = [1]
def f(x):
    nonlocal l
    l *= 2
    return x * len(l)
return f
### dict union
d = {}
def f(x):
    nonlocal d
    d |= {len(d): 1}
    return x * len(d)
return f
### keyed by object
S = {}
class A: pass
a = A()
def f(x):
    S[a] = S.get(a, 0) + 1
    return x * S[a]
return f
### setdefault append
C = {}
def f(x):
    C.setdefault("k", []).append(1)
    return x * len(C["k"])
return f
### flags
class F(enum.IntFlag):
    A = 1; B = 2
s = {"f": F(0)}
def f(x):
    k = 2 if F.A in s["f"] else 3
    s["f"] |= F.A
    return x * k
return f
### state machine
class M:
    nxt = {"a": "b", "b": "c", "c": "a"}
    def __init__(self): self.s = "a"
    def step(self): self.s = self.nxt[self.s]; return ord(self.s)
m = M()
def f(x): return x * m.step()
return f
### handler swap
class M:
    def __init__(self): self.h = self.a
    def a(self, x): self.h = self.b; return x * 2
    def b(self, x): self.h = self.a; return x * 3
m = M()
def f(x): return m.h(x)
return f
### class swap
class A:
    def go(self, x): self.__class__ = B; return x * 2
class B:
    def go(self, x): self.__class__ = A; return x * 3
a = A()
def f(x): return a.go(x)
return f
### own class attribute
class A:
    n = 0
    def go(self, x): self.__class__.n += 1; return x * self.__class__.n
return A().go
### setattr class
class A:
    n = 0
    def go(self, x): setattr(type(self), "n", type(self).n + 1); return x * A.n
a = A()
return lambda x: a.go(x)
### kwdefaults
def h(*, s=[0]): s[0] += 1; return s[0]
def f(x): return x * h()
return f
### defaults rebound
def h(n=1): h.__defaults__ = (n + 1,); return n
def f(x): return x * h()
return f
### cell contents
def mk():
    n = 1
    def g(): return n
    return g
g = mk()
def f(x):
    g.__closure__[0].cell_contents += 1
    return x * g()
return f
### descriptor weak
class D:
    def __init__(self): self.v = weakref.WeakKeyDictionary()
    def __get__(self, o, t=None): return self.v.get(o, 0)
    def __set__(self, o, v): self.v[o] = v
class A: n = D()
a = A()
def f(x):
    a.n += 1
    return x * a.n
return f
### descriptor dict
class D:
    def __get__(self, o, t=None): return o.__dict__.get("_n", 0)
    def __set__(self, o, v): o.__dict__["_n"] = v
class A: n = D()
a = A()
def f(x):
    a.n = a.n + 1
    return x * a.n
return f
### event
e = threading.Event()
def f(x):
    k = 2 if e.is_set() else 3
    e.set()
    return x * k
return f
### semaphore
s = threading.Semaphore(2)
def f(x):
    k = 2 if s.acquire(blocking=False) else 3
    return x * k
return f
### islice
it = itertools.islice(itertools.count(), 1, None)
def f(x): return x * next(it)
return f
### accumulate
it = itertools.accumulate([1, 2, 3, 4])
def f(x): return x * next(it)
return f
### tee
a, b = itertools.tee(iter([1, 2, 3, 4]))
def f(x): return x * next(a)
return f
### chain
it = itertools.chain([1], [2, 3])
def f(x): return x * next(it)
return f
### groupby
it = itertools.groupby([1, 2, 3, 4])
def f(x): return x * next(it)[0]
return f
### most common
c = collections.Counter()
def f(x):
    c.update("a")
    return x * c.most_common(1)[0][1]
return f
### singledispatchmethod
class A:
    def __init__(self): self.n = 0
    @functools.singledispatchmethod
    def go(self, k): return 0
    @go.register
    def _(self, k: int): self.n += 1; return self.n
a = A()
def f(x): return x * a.go(1)
return f
### cached on method
class A:
    def __init__(self): self.n = 0
    def fresh(self): self.n += 1; return self.n
    @functools.cached_property
    def k(self): return self.fresh()
a = A()
def f(x): return x * a.k
return f
### partialmethod
class A:
    def __init__(self): self.n = 0
    def add(self, k): self.n += k; return self.n
    inc = functools.partialmethod(add, 1)
a = A()
def f(x): return x * a.inc()
return f
### reduce stateful
s = [0]
def f(x):
    return x * functools.reduce(lambda a, b: s.__setitem__(0, s[0] + 1) or s[0], [1, 2])
return f
### map stateful
s = []
def f(x): return x * sum(map(lambda v: s.append(v) or len(s), [1, 2]))
return f
### sorted key
s = []
def f(x):
    sorted([3, 1], key=lambda v: s.append(v) or v)
    return x * len(s)
return f
### weakset
class K: pass
w = weakref.WeakSet(); ks = [K() for _ in range(5)]
def f(x):
    w.add(ks[len(w)])
    return x * len(w)
return f
### generator context
@contextlib.contextmanager
def count(box):
    box[0] += 1
    yield box[0]
b = [0]
def f(x):
    with count(b) as k: return x * k
return f
### contextdecorator
class C(contextlib.ContextDecorator):
    def __init__(self): self.n = 0
    def __enter__(self): self.n += 1; return self
    def __exit__(self, *e): pass
c = C()
@c
def g(x): return x * c.n
return lambda x: g(x)
### closure of class
def mk():
    n = 0
    class A:
        @staticmethod
        def go():
            nonlocal n
            n += 1
            return n
    return A
A = mk()
def f(x): return x * A.go()
return f
### module attribute
m = types.ModuleType("mm"); m.n = 0
def f(x):
    setattr(m, "n", m.n + 1)
    return x * m.n
return f
### module vars
m = types.ModuleType("mm"); m.n = 0
def f(x):
    vars(m)["n"] += 1
    return x * vars(m)["n"]
return f
### dataclass factory
@dataclasses.dataclass
class S: items: list = dataclasses.field(default_factory=list)
s = S()
def f(x):
    s.items.append(1)
    return x * len(s.items)
return f
### attrs evolve
import attrs
@attrs.frozen
class S: n: int = 0
h = {"s": S()}
def f(x):
    h["s"] = attrs.evolve(h["s"], n=h["s"].n + 1)
    return x * h["s"].n
return f
"""
