"""Programs that take objects out of tables and ask for them, or look at orders in rare ways.

Each is the body of a function that returns the one to compile. Used by `test_cap_order`.
Rule: CAP-14.
"""

from __future__ import annotations

PROGRAMS = r"""
### pop a function
d = {"a": lambda v: v * 3}
def f(x): return d.pop("a", lambda v: v * 2)(x)
return f
### pop a tensor
d = {"a": T([3.0])}
def f(x): return x * d.pop("a", T([2.0]))
return f
### del after in
d = {"a": T([3.0])}
def f(x):
    if "a" in d:
        del d["a"]
        return x * 5
    return x * 7
return f
### del attr of object
class A: pass
a = A(); a.act = lambda v: v * 3
def f(x):
    if hasattr(a, "act"):
        del a.act
        return x * 5
    return x * 7
return f
### aliased list
l = [1, 2, 3]; m = l
def f(x):
    l.reverse()
    return x * m[0]
return f
### dict of dicts swapped
d = {"a": {"k": T([1.0])}, "b": {"k": T([2.0])}}
def f(x):
    d["a"], d["b"] = d["b"], d["a"]
    return x * d["a"]["k"]
return f
### identity keys
class K: pass
a, b = K(), K(); t = {a: 2, b: 3}; s = [a]
def f(x):
    s[0] = b if s[0] is a else a
    return x * t[s[0]]
return f
### sorted by mutable rank
class K:
    def __init__(self, r): self.r = r
ks = [K(1), K(2)]
def f(x):
    ks.sort(key=lambda k: -k.r)
    ks[0].r, ks[1].r = ks[1].r, ks[0].r
    return x * ks[0].r
return f
### kwargs order of partial
p = functools.partial(lambda **k: list(k.values())[0], a=2, b=3)
def f(x):
    p.keywords["a"] = p.keywords.pop("a")
    return x * p()
return f
### defaultdict
d = collections.defaultdict(int, a=2, b=3)
def f(x):
    d["a"] = d.pop("a")
    return x * next(iter(d.values()))
return f
### chain map
d = collections.ChainMap({"a": 2, "b": 3})
def f(x):
    d["a"] = d.pop("a")
    return x * next(iter(d.values()))
return f
### json of dict
import json
d = {"a": 2, "b": 3}
def f(x):
    d["a"] = d.pop("a")
    return x * int(json.dumps(d)[6])
return f
### star call
d = {"a": 2, "b": 3}
def g(**k): return next(iter(k.values()))
def f(x):
    d["a"] = d.pop("a")
    return x * g(**d)
return f
### unpack two
d = {"a": 2, "b": 3}
def f(x):
    d["a"] = d.pop("a")
    p, q = d
    return x * ord(p)
return f
### dict compare ordered
d = collections.OrderedDict(a=2, b=3); e = collections.OrderedDict(a=2, b=3)
def f(x):
    d.move_to_end("a")
    return x * (2 if d == e else 3)
return f
### a subclass with an iterator
class D(dict):
    def __iter__(self): return reversed(list(dict.__iter__(self)))
d = D(a=2, b=3)
def f(x):
    d["a"] = d.pop("a")
    return x * ord(next(iter(d)))
return f
### popitem dropped, then first
d = {"a": 2, "b": 3, "c": 4}
def f(x):
    d["a"] = d.pop("a")
    d.popitem()
    d["a"] = 2
    return x * next(iter(d.values()))
return f
### queue of functions
q = queue.Queue()
[q.put(g) for g in (lambda v: v * 2, lambda v: v * 3, lambda v: v * 4)]
def f(x): return q.get()(x)
return f
### contextvar of dtypes
v = contextvars.ContextVar("v", default=al.float32)
def f(x):
    d = v.get(); v.set(al.float64 if d is al.float32 else al.float32)
    return x * (2 if d is al.float32 else 3)
return f
### thread local dtypes
v = threading.local(); v.d = al.float32; v.e = al.float64
def f(x):
    v.d, v.e = v.e, v.d
    return x * (2 if v.d is al.float32 else 3)
return f
### frozen dataclass keys
@dataclasses.dataclass(frozen=True)
class K: n: int
d = {K(1): 2, K(2): 3}
def f(x):
    d[K(1)] = d.pop(K(1))
    return x * next(iter(d.values()))
return f
### set of objects grows
class K: pass
a, b = K(), K(); s = {a}
def f(x):
    y = x * (2 if b in s else 3)
    s.add(b)
    return y
return f
### frozenset replaced
class K: pass
a, b = K(), K()
class H: s = frozenset([a])
def f(x):
    y = x * (2 if b in H.s else 3)
    H.s = H.s | {b}
    return y
return f
### a list of objects flag
class K: pass
a = K(); seen = []
def f(x):
    y = x * (2 if a in seen else 3)
    seen.append(a)
    return y
return f
### rotated module functions
acts = [al.sin, al.cos, al.exp]
def f(x):
    acts.append(acts.pop(0))
    return acts[0](x)
return f
### handlers by pop
acts = [lambda v: v * 2, lambda v: v * 3, lambda v: v * 4]
def f(x): return acts.pop()(x)
return f
### tensors by pop
ts = [T([2.0]), T([3.0]), T([4.0])]
def f(x): return x * ts.pop()
return f
### a computed key that is taken
d = {k: (lambda v: v * 3) for k in "abc"}
def f(x):
    k = min(d)
    return d.pop(k)(x) * (ord(k) - 90)
return f
"""
