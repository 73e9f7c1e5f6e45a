"""Everyday programs that change what they read: a later call of each does something else.

Each program is the body of a function that returns the one to compile. Used by
`test_cap_programs`. Rule: CAP-14.
"""

from __future__ import annotations

PROGRAMS = r"""
### recurrent attr
class R: pass
r = R(); r.h = T([0.0])
def f(x):
    y = x + r.h; r.h = y; return y
return f
### recurrent list
s = [T([0.0])]
def f(x):
    s.append(s[-1] + x); return s[-1] * 2
return f
### recurrent none
s = {"h": None}
def f(x):
    s["h"] = x * 2 if s["h"] is None else s["h"] + x
    return s["h"] * 1
return f
### swap function
a, b = (lambda x: x * 2), (lambda x: x * 3)
cur = a
def f(x):
    nonlocal cur
    y = cur(x); cur = b if cur is a else a; return y
return f
### swap two
s = {"a": (lambda x: x * 2), "b": (lambda x: x * 3)}
def f(x):
    s["a"], s["b"] = s["b"], s["a"]; return s["a"](x)
return f
### swap object
class O:
    def __init__(self, k): self.k = k
s = types.SimpleNamespace(cur=O(1), nxt=O(2))
def f(x):
    s.cur, s.nxt = s.nxt, s.cur; return x * s.cur.k
return f
### linked list
class N:
    def __init__(self, k, nxt): self.k, self.nxt = k, nxt
class S: pass
s = S(); s.cur = N(1, N(2, N(3, N(4, None))))
def f(x):
    s.cur = s.cur.nxt; return x * s.cur.k
return f
### deque rotate funcs
d = collections.deque([lambda x: x * 2, lambda x: x * 3, lambda x: x * 4])
def f(x):
    d.rotate(1); return d[0](x)
return f
### iter layers
it = itertools.cycle([lambda x: x * 2, lambda x: x * 3])
def f(x): return next(it)(x)
return f
### mutable default
def f(x, seen=[]):
    seen.append(1); return x * len(seen)
return f
### mutable default helper
def h(seen=[]):
    seen.append(1); return len(seen)
def f(x): return x * h()
return f
### lru counter
n = [0]
@functools.lru_cache(None)
def fresh(k): n[0] += 1; return n[0]
def f(x): return x * fresh(3)
return f
### registry
class Reg:
    items = []
    def __init_subclass__(cls): Reg.items.append(cls)
def f(x):
    class A(Reg): pass
    return x * len(Reg.items)
return f
### instances cls
class A:
    count = 0
    @classmethod
    def make(cls): cls.count += 1; return cls()
def f(x):
    A.make(); return x * A.count
return f
### instances id
class A:
    ids = itertools.count()
    def __init__(self): self.id = next(A.ids)
def f(x): return x * (A().id + 1)
return f
### ctxmgr leak
class C:
    def __init__(self): self.entered = 0
    def __enter__(self): self.entered += 1; return self
    def __exit__(self, *a): pass
c = C()
def f(x):
    with c as k: return x * k.entered
return f
### getattr lazy
class L:
    def __getattr__(self, name):
        if name == "scale":
            self.scale = 3; return 2
        raise AttributeError(name)
l = L()
def f(x): return x * l.scale
return f
### prop count
class L:
    def __init__(self): self._n = 0
    @property
    def n(self): self._n += 1; return self._n
l = L()
def f(x): return x * l.n
return f
### descriptor
class D:
    def __init__(self): self.c = 0
    def __get__(self, o, t=None): self.c += 1; return self.c
class L: n = D()
l = L()
def f(x): return x * l.n
return f
### logging count
records = []
class H(logging.Handler):
    def emit(self, r): records.append(r)
lg = logging.Logger("a"); lg.addHandler(H())
def f(x):
    lg.warning("hi"); return x * len(records)
return f
### caught
n = [0]
def risky():
    n[0] += 1
    if n[0] == 1: raise ValueError
    return 5
def f(x):
    try: k = risky()
    except ValueError: k = 1
    return x * k
return f
### generator send
def g():
    t = 0
    while True: t += 1; yield t
it = g()
def f(x): return x * next(it)
return f
### for break
it = iter(range(1, 10))
def f(x):
    for k in it: break
    return x * k
return f
### zip iter
it = zip([1, 2, 3, 4], [5, 6, 7, 8])
def f(x):
    a, b = next(it); return x * (a + b)
return f
### map iter
it = map(lambda v: v + 1, [1, 2, 3, 4])
def f(x): return x * next(it)
return f
### dataset
class D:
    def __init__(self): self.i = 0
    def __iter__(self): return self
    def __next__(self): self.i += 1; return self.i
d = D()
def f(x): return x * next(d)
return f
### dataset for
class D:
    def __init__(self): self.i = 0
    def __iter__(self): return self
    def __next__(self): self.i += 1; return self.i
d = D()
def f(x):
    for k in d: return x * k
return f
### ctxvar
v = contextvars.ContextVar("v", default=0)
def f(x):
    v.set(v.get() + 1); return x * v.get()
return f
### tlocal
l = threading.local(); l.n = 0
def f(x):
    l.n += 1; return x * l.n
return f
### queue get
q = queue.Queue(); [q.put(i) for i in (1, 2, 3, 4)]
def f(x): return x * q.get()
return f
### enum attr
class E(enum.Enum): A = 1
E.A.n = 0
def f(x):
    E.A.n += 1; return x * E.A.n
return f
### dataclass replace
@dataclasses.dataclass(frozen=True)
class S: n: int = 0
h = [S()]
def f(x):
    h[0] = dataclasses.replace(h[0], n=h[0].n + 1); return x * h[0].n
return f
### namedtuple replace
S = collections.namedtuple("S", "n")
s = S(0)
def f(x):
    nonlocal s
    s = s._replace(n=s.n + 1); return x * s.n
return f
### fraction
s = {"n": fractions.Fraction(1, 2)}
def f(x):
    s["n"] += 1; return x * float(s["n"])
return f
### stringio
s = io.StringIO()
def f(x):
    s.write("a"); return x * len(s.getvalue())
return f
### func attr
def f(x):
    f.calls = getattr(f, "calls", 0) + 1; return x * f.calls
return f
### class with call
class C:
    def __init__(self): self.n = 0
    def __call__(self): self.n += 1; return self.n
c = C()
def f(x): return x * c()
return f
### partial args
l = [0]
def h(l): l[0] += 1; return l[0]
p = functools.partial(h, l)
def f(x): return x * p()
return f
### strategy in dict
class Sched:
    def __init__(self): self.t = 0
    def step(self): self.t += 1
    def lr(self): return 1.0 / (1 + self.t)
d = {"s": Sched()}
def f(x):
    y = x * d["s"].lr(); d["s"].step(); return y
return f
### scheduler alias
class Sched:
    def __init__(self): self.t = 0
    def step(self): self.t += 1
    def lr(self): return 1.0 / (1 + self.t)
s = Sched()
step, lr = s.step, s.lr
def f(x):
    y = x * lr(); step(); return y
return f
### module plain child deco
def deco(f):
    @functools.wraps(f)
    def g(*a): return f(*a)
    return g
class H:
    def __init__(self): self.n = 0
    @deco
    def tick(self): self.n += 1; return self.n
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.h = H(); self.w = nn.Parameter(T([2.0]))
    @deco
    def forward(self, x): return x * self.w * self.h.tick()
return Net()
### weakdict
d = weakref.WeakValueDictionary();
class K: pass
ks = [K(), K(), K()]
it = [0]
def f(x):
    d[len(d)] = ks[len(d)]; return x * len(d)
return f
### heap
import heapq
h = [3, 1, 2]; heapq.heapify(h)
def f(x): return x * heapq.heappop(h)
return f
### global dyn
ns = {"__name__": "userx"}
exec("N = 0\ndef f(x):\n    globals()['N'] += 1\n    return x * N", ns)
return ns["f"]
### global method
ns = {"__name__": "userx"}
exec("N = 0\nclass A:\n  def bump(self):\n    global N\n    N += 1\n    return N", ns)
exec("a = A()\ndef f(x):\n    return x * a.bump()", ns)
return ns["f"]
### exec inside
ns = {"n": 0}
def f(x):
    exec("n += 1", ns); return x * ns["n"]
return f
### closure helper obj
def make():
    n = 0
    class A:
        def bump(self):
            nonlocal n
            n += 1; return n
    return A()
a = make()
def f(x): return x * a.bump()
return f
### walrus cond
s = set()
def f(x):
    if "seen" in s: return x * 2
    s.add("seen"); return x * 3
return f
### once flag attr
class W: warned = False
def f(x):
    if not W.warned:
        W.warned = True; warnings.warn("hi")
        return x * 2
    return x * 3
return f
### sentinel
_none = object(); s = {"v": _none}
def f(x):
    if s["v"] is _none: s["v"] = object(); return x * 2
    return x * 3
return f
### first object
s = {"v": None}
def f(x):
    if s["v"] is None: s["v"] = object(); return x * 2
    return x * 3
return f
### time like
class Clock:
    def __init__(self): self.t = 0
    def __call__(self): self.t += 1; return self.t
clock = Clock()
class Timer:
    def __init__(self, c): self.c = c
    def __enter__(self): self.s = self.c(); return self
    def __exit__(self, *a): self.e = self.c()
def f(x):
    with Timer(clock) as t: pass
    return x * t.e
return f
### exitstack
l = []
def f(x):
    with contextlib.ExitStack() as s:
        s.callback(l.append, 1)
    return x * len(l)
return f
### star unpack
l = [1]
def f(x):
    l.append(1); a, *r = l; return x * (1 + len(r))
return f
### fstring
d = {"n": 0}
def f(x):
    d["n"] += 1; return x * int(f"{d['n']}")
return f
### deep copy state
class S:
    def __init__(self): self.n = 0
s = S()
def f(x):
    s.n += 1; return x * copy.copy(s).n
return f
### match class
class S:
    __match_args__ = ("n",)
    def __init__(self): self.n = 0
s = S()
def f(x):
    s.n += 1
    match s:
        case S(n): return x * n
return f
### match kw
class S:
    def __init__(self): self.n = 0
s = S()
def f(x):
    s.n += 1
    match s:
        case S(n=k): return x * k
return f
### match map
d = {"n": 0}
def f(x):
    d["n"] += 1
    match d:
        case {"n": k}: return x * k
return f
### eq obj
class S:
    def __init__(self): self.n = 0
    def __eq__(self, o): return self.n == o
    __hash__ = None
s = S()
def f(x):
    s.n += 1
    return x * (2 if s == 1 else 3)
return f
### mul obj
class S:
    def __init__(self): self.n = 0
    def __rmul__(self, o): return o * self.n
s = S()
def f(x):
    s.n += 1
    return x * 1 + s.__rmul__(x)
return f
"""
