"""Programs whose state settles in the first call, and those near them whose state does not.

Each program is the body of a function that returns the one to compile. Used by `test_cap_settled`.
Rule: CAP-16.
"""

from __future__ import annotations

SETTLED = r"""
### table of numbers by sizes
memo = {}
def f(x):
    n = x.shape[0]
    if n not in memo: memo[n] = 1.0 / n
    return x * memo[n]
return f
### flag of a warning
class M:
    warned = False
    def f(self, x):
        if not self.warned:
            print("hi", file=io.StringIO()); self.warned = True
        return x * 2
return M().f
### texts that were warned of
seen = set()
def warn_once(t):
    if t in seen: return
    seen.add(t)
def f(x):
    warn_once("a"); return x * 2
return f
### list that a property fills
class R:
    _t = None
    @property
    def table(self):
        if self._t is None: self._t = [1.0, 2.0]
        return self._t
r = R()
def f(x): return x * r.table[1]
return f
### set up once
class R:
    ready = False
    def setup(self):
        if self.ready: return
        self.scale = 3.0; self.ready = True
r = R()
def f(x):
    r.setup(); return x * r.scale
return f
### number put in if hasattr says no
class R: pass
r = R()
def f(x):
    if not hasattr(r, "scale"): r.scale = 2.0
    return x * r.scale
return f
### number over None
scale = None
def f(x):
    nonlocal scale
    if scale is None: scale = 2.0
    return x * scale
return f
### size in a variable
n = 0
def f(x):
    nonlocal n
    n = x.shape[0]
    return x * n
return f
### size in a table
d = {}
def f(x):
    d["n"] = x.shape[0]
    return x * d["n"]
return f
### list that is cleared and filled
class C:
    def __init__(self): self.outs = []
c = C()
def f(x):
    c.outs.clear()
    for i in range(3): c.outs.append(x * i)
    return sum(c.outs)
return f
### one object of a class
class S:
    _i = None
    def __new__(cls):
        if cls._i is None: cls._i = super().__new__(cls)
        return cls._i
def f(x):
    S().k = 2
    return x * S().k
return f
### one object of a class, with a number
class A:
    inst = None
    @classmethod
    def get(cls):
        if cls.inst is None: cls.inst = cls(); cls.inst.v = 4
        return cls.inst
def f(x): return x * A.get().v
return f
### buffer that each call fills
buf = np.zeros(3)
def f(x):
    buf[:] = 2.0
    return x * float(buf[0])
return f
### largest size
class C: best = 0
c = C()
def f(x):
    c.best = max(c.best, x.shape[0])
    return x * 2
return f
### shapes that were seen
seen = []
def f(x):
    if x.shape not in seen: seen.append(x.shape)
    return x * 2
return f
### rank of the first call
class C: shape = None
c = C()
def f(x):
    if c.shape is None: c.shape = x.ndim
    assert x.ndim == c.shape
    return x * 2
return f
### counter that stops
n = 2
def f(x):
    nonlocal n
    n = min(n + 1, 3)
    return x * n
return f
### number as a result
n = 0
def f(x):
    nonlocal n
    n = max(n, 1)
    return x * 2, n
return f
### list that is sorted
l = [3, 1, 2]
def f(x):
    l.sort()
    return x * l[0]
return f
### item that goes
s = {1, 2}
def f(x):
    s.discard(1)
    return x * len(s)
return f
### default put into a table
d = {}
def f(x): return x * d.setdefault("k", 4)
return f
### object over None
class K:
    def __init__(self): self.n = 3
k = None
def f(x):
    nonlocal k
    if k is None: k = K()
    return x * k.n
return f
### optimizer, and a flag
w = nn.Parameter(T([1.0])); opt = al.optim.SGD([w], lr=0.1, momentum=0.9)
started = False
def f(x):
    nonlocal started
    if not started: started = True
    opt.zero_grad(); (w * x).sum().backward(); opt.step()
    return w.detach().clone()
return f
### flag behind a cache
@functools.lru_cache
def once(): return len(made)
made = []
def f(x):
    v = once()
    made.append(1) if not made else None
    return x * (v + 1)
return f
"""

UNSETTLED = r"""
### counter in the branch of a flag
class C: on = False; n = 0
c = C()
def f(x):
    if not c.on: c.on = True; c.n += 1
    return x * 2
return f
### object put in in the branch of a flag
class C: on = False
c = C(); d = {}
def f(x):
    if not c.on: c.on = True; d["k"] = object()
    return x * 2
return f
### history by a flag
on = False
w = nn.Parameter(T([2.0]))
def f(x):
    nonlocal on
    with al.set_grad_enabled(on):
        y = w * 3
    on = True
    z = (y * w * x).sum()
    z.backward()
    g = w.grad.clone(); w.grad = None
    return g
return f
### history of a result by a flag
on = False
w = nn.Parameter(T([2.0]))
def f(x):
    nonlocal on
    with al.set_grad_enabled(on):
        y = w * 3
    on = True
    return y * w * x
def g(x):
    r = f_(x); r.sum().backward(); v = w.grad.tolist(); w.grad = None
    return v
f_ = f
return f
### order of results by a flag
on = False
def f(x):
    nonlocal on
    a, b = x * 2, x * 3
    r = (a, b) if on else (b, a)
    on = True
    return r
return f
### error in the second call
on = False
def f(x):
    nonlocal on
    if on: raise ValueError("twice")
    on = True
    return x
return f
### one of two equal tensors
on = False
a, b = T([2.0]), T([2.0])
def f(x):
    nonlocal on
    w = a if on else b
    on = True
    return x * w
return f
### hook by a flag
on = False
def f(x):
    nonlocal on
    y = x.clone().requires_grad_()
    if on: y.register_hook(lambda g: g * 2)
    on = True
    (y * 3).sum().backward()
    return y.grad
return f
### write by a flag
on = False
def f(x):
    nonlocal on
    if on: x.mul_(2)
    on = True
    return x * 1
return f
### write to a variable by a flag
on = False
w = T([2.0])
def f(x):
    nonlocal on
    if not on: w.mul_(2)
    on = True
    return x * w
return f
### counter that stops later
n = 0
def f(x):
    nonlocal n
    n = min(n + 1, 3)
    return x * n
return f
### identity of a new object
k = None
def f(x):
    nonlocal k
    old = k
    k = object()
    return x * (2 if old is None else 3)
return f
### buffer that adds up
buf = np.zeros(3)
def f(x):
    buf[:] = buf + 2
    return x * float(buf.sum())
return f
### object over None that counts
class K:
    def __init__(self): self.n = 0
    def bump(self): self.n += 1; return self.n
k = None
def f(x):
    nonlocal k
    if k is None: k = K()
    return x * k.bump()
return f
### generator that ends
g = (i for i in [1])
def f(x):
    for i in g: x = x * 10
    return x
return f
### tensor over None
class R:
    _t = None
    @property
    def table(self):
        if self._t is None: self._t = al.ones(1) * 3
        return self._t
r = R()
def f(x): return x * r.table
return f
### file that each call writes
p = tempfile.mktemp(); on = False
def f(x):
    nonlocal on
    if not on: on = True
    with open(p, "a") as h: h.write("a")
    return x
return f
### thread in each call
on = False; n = []
def f(x):
    nonlocal on
    if not on: on = True
    t = threading.Thread(target=n.append, args=(1,)); t.start(); t.join()
    return x
return f
### flag, and a print in each call
class C: on = False
c = C()
def f(x):
    print("hello", end="")
    if not c.on: c.on = True
    return x * 2
return f
### order of a result's keys by a flag
on = False
def f(x):
    nonlocal on
    r = {"a": x, "b": x * 2} if on else {"b": x * 2, "a": x}
    on = True
    return r
return f
"""
