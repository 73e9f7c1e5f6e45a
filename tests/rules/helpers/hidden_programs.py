"""Programs whose state lies in places that a reader would not look into first.

Each is the body of a function that returns the one to compile. Used by `test_cap_programs`.
Rule: CAP-14.
"""

from __future__ import annotations

PROGRAMS = r"""
### lookup by name
class A:
    def __init__(self): self.n = 0
a = A()
def f(x, name="n"):
    setattr(a, name, getattr(a, name) + 1)
    return x * getattr(a, name)
return f
### vars of self
class A:
    def __init__(self): self.n = 0
    def go(self, x):
        s = vars(self)
        s["n"] += 1
        return x * s["n"]
return A().go
### walrus
s = {"n": 0}
def f(x): return x * (s.update(n=(k := s["n"] + 1)) or k)
return f
### chained
class A: pass
a = A(); a.b = A(); a.b.c = A(); a.b.c.n = 0
def f(x):
    o = a.b.c
    o.n += 1
    return x * o.n
return f
### list of objects
class A:
    def __init__(self): self.n = 0
l = [A(), A()]
def f(x):
    for o in l: o.n += 1
    return x * sum(o.n for o in l)
return f
### dict of lists
d = collections.defaultdict(list)
def f(x):
    d["a"].append(2)
    return x * sum(d["a"])
return f
### numpy array
import numpy as np
a = np.zeros(3)
def f(x):
    a[0] += 1
    return x * float(a[0])
return f
### numpy rebound
import numpy as np
a = np.zeros(3)
def f(x):
    nonlocal a
    a = a + 1
    return x * float(a.sum())
return f
### deque popleft
d = collections.deque([1, 2, 3, 4])
def f(x): return x * d.popleft()
return f
### exception counter
class E(Exception):
    n = 0
    def __init__(self): E.n += 1
def f(x):
    try: raise E
    except E: return x * E.n
return f
### finally
s = {"n": 1}
def f(x):
    try: return x * s["n"]
    finally: s["n"] += 1
return f
### yield from helper
s = [0]
def g():
    s[0] += 1
    yield s[0]
def f(x): return x * sum(g())
return f
### tensor ring
T0, T1 = T([2.0]), T([3.0])
r = [T0, T1]
def f(x):
    r.reverse()
    return x * r[0]
return f
### tensor slot
class A: pass
a = A(); a.p, a.q = T([2.0]), T([3.0])
def f(x):
    a.p, a.q = a.q, a.p
    return x * a.p
return f
### tensor choice
ts = [T([2.0]), T([3.0]), T([4.0])]
class A: pass
a = A(); a.i = 0
def f(x):
    a.i = (a.i + 1) % 3
    return x * ts[a.i]
return f
### layer schedule
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.it = itertools.cycle([2.0, 3.0])
    def forward(self, x): return x * next(self.it)
return Net()
### module plain state
class St:
    def __init__(self): self.n = 0
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.st = [St()]
    def forward(self, x):
        self.st[0].n += 1
        return x * self.st[0].n
return Net()
### callback list
seen = []
cbs = [seen.append]
def f(x):
    for c in cbs: c(1)
    return x * len(seen)
return f
### lambda default
f = lambda x, s=[0]: (s.__setitem__(0, s[0] + 1), x * s[0])[1]
return f
### object in closure of lambda
class A: n = 0
inc = (lambda A: lambda: setattr(A, "n", A.n + 1) or A.n)(A)
def f(x): return x * inc()
return f
### string id
ids = {}
def f(x):
    k = ids.setdefault("a", len(ids) + 1)
    j = ids.setdefault(str(len(ids)), 9)
    return x * len(ids)
return f
### context manager swaps flag
class Mode:
    on = False
    def __enter__(self): self.was = Mode.on; Mode.on = True
    def __exit__(self, *e): Mode.on = self.was
m = Mode()
def f(x):
    with m: return x * (2 if Mode.on else 3)
return f
### logging formatter
class F(logging.Filter):
    def __init__(self): super().__init__(); self.n = 0
    def filter(self, r): self.n += 1; return True
flt = F(); lg = logging.Logger("q"); lg.addFilter(flt); lg.addHandler(logging.NullHandler())
def f(x):
    lg.warning("a")
    return x * flt.n
return f
### warnings filter
class W: n = 0
def show(*a, **k): W.n += 1
def f(x):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        warnings.warn("a")
    return x * W.n
return f
### functools cache clear
s = [0]
@functools.cache
def g(): s[0] += 1; return s[0]
def f(x):
    g.cache_clear()
    return x * g()
return f
### object behind a key
class A:
    def __init__(self): self.n = 0
    def __hash__(self): return 1
    def __eq__(self, o): return self is o
a = A()
d = {a: 1}
def f(x):
    for k in d: k.n += 1
    return x * sum(k.n for k in d)
return f
### object in a set
class A:
    def __init__(self): self.n = 0
s = {A()}
def f(x):
    for k in s: k.n += 1
    return x * sum(k.n for k in s)
return f
### object in a tuple key
class A:
    def __init__(self): self.n = 0
a = A(); t = ((a,),)
def f(x):
    t[0][0].n += 1
    return x * t[0][0].n
return f
### eval name
class A: n = 0
a = A()
def f(x):
    exec("a.n += 1", {"a": a})
    return x * a.n
return f
### globals of another
ns = {"__name__": "other_module", "K": 0}
exec("def bump():\n  global K\n  K += 1\ndef read():\n  return K", ns)
bump, read = ns["bump"], ns["read"]
def f(x):
    bump()
    return x * read()
return f
### nested class
class O:
    class I:
        n = 0
o = O()
def f(x):
    o.I.n += 1
    return x * O.I.n
return f
### star attribute
class A: pass
a = A(); a.n = 0
def f(x):
    a.n, k = a.n + 1, a.n
    return x * (k + 1)
return f
### for target
class A: pass
a = A(); a.i = 0
def f(x):
    k = a.i
    for a.i in range(k, k + 2): pass
    return x * a.i
return f
### with target
class A: pass
class C:
    def __init__(self): self.n = 0
    def __enter__(self): self.n += 1; return self.n
    def __exit__(self, *e): pass
a, c = A(), C()
def f(x):
    with c as a.v: pass
    return x * a.v
return f
### except target
class E(Exception): pass
log = []
def f(x):
    try: raise E(len(log))
    except E as e: log.append(e)
    return x * len(log)
return f
### thread
import threading
s = [0]
def f(x):
    t = threading.Thread(target=lambda: s.__setitem__(0, s[0] + 1)); t.start(); t.join()
    return x * s[0]
return f
### pool
from concurrent.futures import ThreadPoolExecutor
s = [0]
def bump(): s[0] += 1; return s[0]
def f(x):
    with ThreadPoolExecutor(1) as p: return x * p.submit(bump).result()
return f
### operator methodcaller counter
class A:
    def __init__(self): self.n = 0
    def inc(self): self.n += 1; return self.n
import operator
a = A()
def f(x): return x * operator.methodcaller("inc")(a)
return f
### getattr by table
class A:
    def __init__(self): self.n = 0
    def inc(self): self.n += 1; return self.n
a = A(); T_ = {"k": "inc"}
def f(x): return x * getattr(a, T_["k"])()
return f
### property deleter
class A:
    def __init__(self): self._n = 0
    @property
    def n(self): return self._n
    @n.deleter
    def n(self): self._n += 1
a = A()
def f(x):
    del a.n
    return x * a.n
return f
### slots inherit
class A: __slots__ = ("a",)
class B(A): __slots__ = ("b",)
b = B(); b.a = 0; b.b = 1
def f(x):
    b.a += b.b
    return x * b.a
return f
### mixin
class Counted:
    def tick(self): self.n = getattr(self, "n", 0) + 1; return self.n
class A(Counted): pass
a = A()
def f(x): return x * a.tick()
return f
### borg
class Borg:
    shared = {}
    def __init__(self): self.__dict__ = self.shared
Borg.shared["n"] = 0
b = Borg()
def f(x):
    Borg().n += 1
    return x * b.n
return f
### observer
class S:
    def __init__(self): self.obs = []
    def emit(self): [o() for o in self.obs]
class C:
    def __init__(self, s): self.n = 0; s.obs.append(self.on)
    def on(self): self.n += 1
s = S(); c = C(s)
def f(x):
    s.emit()
    return x * c.n
return f
### undo stack
st, cur = [1, 2, 3], {"v": 4}
def f(x):
    cur["v"] = st.pop()
    return x * cur["v"]
return f
### lazy import flag
_np = None
def get():
    nonlocal _np
    if _np is None:
        import numpy
        _np = numpy
        return 2
    return 3
def f(x): return x * get()
return f
### retry
class R:
    def __init__(self): self.tries = 0
    def __call__(self):
        self.tries += 1
        if self.tries % 2: raise ValueError
        return self.tries
r = R()
def f(x):
    while True:
        try: return x * r()
        except ValueError: pass
return f
### ema number
class E:
    def __init__(self): self.v = 0.0
    def update(self, k): self.v = 0.9 * self.v + 0.1 * k; return self.v
e = E()
def f(x): return x * e.update(1.0)
return f
### warmup
class S:
    def __init__(self): self.t = 0
    @property
    def lr(self): return min(1.0, self.t / 10)
    def step(self): self.t += 1
s = S()
def f(x):
    y = x * s.lr
    s.step()
    return y
return f
### optimizer lr
w = nn.Parameter(T([1.0])); opt = al.optim.SGD([w], lr=0.1)
def f(x):
    opt.zero_grad(); (w * x).sum().backward(); opt.step()
    opt.lr = opt.lr * 0.5
    return w.detach() * 1
return f
### module training flag
m = nn.Dropout(0.0)
def f(x):
    k = 2 if m.training else 3
    m.eval()
    return m(x) * k
return f
### hidden state dict
class N(nn.Module):
    def __init__(self):
        super().__init__(); self.cache = {}
    def forward(self, x):
        h = self.cache.get("h")
        y = x if h is None else x + h
        self.cache["h"] = y
        return y * 1
return N()
### tensor list state
hist = []
def f(x):
    hist.append(x * 2)
    return sum(hist)
return f
### kv cache
class KV:
    def __init__(self): self.k = []
    def add(self, t): self.k.append(t); return al.cat(self.k)
kv = KV()
def f(x): return kv.add(x * 1).sum().reshape(1)
return f
### address of a network
import ipaddress
ip = ipaddress.ip_address(1)
def f(x):
    nonlocal ip
    ip = ipaddress.ip_address(int(ip) + 1)
    return x * int(ip)
return f
### match of a pattern
import re
m = re.match("a+", "aaa")
def f(x):
    nonlocal m
    m = re.match("a+", "a" * (len(m.group()) + 1))
    return x * len(m.group())
return f
### memory view
m = memoryview(bytearray(4))
def f(x):
    m[0] += 1
    return x * m[0]
return f
### number of ctypes
import ctypes
n = ctypes.c_int(0)
def f(x):
    n.value += 1
    return x * n.value
return f
### flat iterator of an array
import numpy
a = numpy.arange(1.0, 9.0).flat
def f(x): return x * float(next(a))
return f
"""
