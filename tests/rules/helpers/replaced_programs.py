"""Programs that put another thing where they read, and others that leave what they read alone.

Each program is the body of a function that returns the one to compile. Used by
`test_cap_replaced`. Rule: CAP-14.
"""

from __future__ import annotations

PROGRAMS = r"""
### function of aotlite in a dict
op = {"g": al.sin}
def f(x):
    r = op["g"](x); op["g"] = al.cos
    return r
return f
### function of aotlite in a closure
op = al.sin
def f(x):
    nonlocal op
    r = op(x); op = al.cos
    return r
return f
### function of aotlite in an attribute
a = types.SimpleNamespace(op=al.sin)
def f(x):
    r = a.op(x); a.op = al.cos
    return r
return f
### method of Tensor
op = {"g": al.Tensor.sin}
def f(x):
    r = op["g"](x); op["g"] = al.Tensor.cos
    return r
return f
### two functions of one text in two modules
source = "def call(x): return go(x)"
one, other = {"go": lambda x: x * 2}, {"go": lambda x: x * 3}
exec(source, one); exec(source, other)
op = {"g": one["call"]}
def f(x):
    r = op["g"](x); op["g"] = other.get("call")
    return r
return f
### lock
lock = threading.Lock()
def f(x): return x * 2 if lock.acquire(blocking=False) else x * 3
return f
### arguments of an exception
class E(Exception): pass
e = E(0)
def f(x):
    e.args = (e.args[0] + 1,)
    return x * e.args[0]
return f
### arguments of an exception of Python
e = ValueError(0)
def f(x):
    e.args = (e.args[0] + 1,)
    return x * e.args[0]
return f
### class registered
import abc
class A(abc.ABC): pass
class B: pass
b = B()
def f(x):
    r = x * 2 if isinstance(b, A) else x * 3
    A.register(B)
    return r
return f
### getattribute that counts
class A:
    def __init__(self): self.n = 0
    def __getattribute__(self, key):
        own = object.__getattribute__(self, "__dict__")
        if key == "n": own["n"] = own["n"] + 1
        return object.__getattribute__(self, key)
a = A()
def f(x): return x * a.n
return f
### singledispatch
@functools.singledispatch
def g(value): return 1
def f(x):
    r = x * g(3)
    g.register(int, lambda value: 7)
    return r
return f
### attribute of builtins
import builtins
builtins.al_count = 0
def f(x):
    builtins.al_count += 1
    return x * al_count
return f
### name of a builtin
names = {}
text = "def f(x):\n r = x * abs(-2)\n globals()['abs'] = lambda value: 7\n return r"
exec(text, names)
return names["f"]
### object put in if hasattr says no
class K: v = 3
class A: pass
a = A()
def f(x):
    if not hasattr(a, "k"):
        a.k = K()
        return x
    return x * a.k.v
return f
### list put in if hasattr says no
class A: pass
a = A()
def f(x):
    if not hasattr(a, "k"):
        a.k = []
        return x
    return x * 5
return f
### tensor put in if hasattr says no
class A: pass
a, w = A(), T([2.0])
def f(x):
    if not hasattr(a, "k"):
        a.k = w
        return x
    return x * a.k
return f
### tensor that was made, put in if hasattr says no
class A: pass
a = A()
def f(x):
    if not hasattr(a, "k"):
        a.k = x * 2
        return x
    return x * 5
return f
### object put into a namespace after any error
a = types.SimpleNamespace()
class K: v = 3
def f(x):
    try: return x * a.k.v
    except: a.k = K()
    return x
return f
### object put into a module
class K: v = 3
m = types.ModuleType("users_module")
def f(x):
    if not hasattr(m, "k"):
        m.k = K()
        return x
    return x * m.k.v
return f
### number put into a module
m = types.ModuleType("users_module")
def f(x):
    if not hasattr(m, "k"):
        m.k = 3
        return x
    return x * m.k
return f
### function put into a namespace
a = types.SimpleNamespace()
def f(x):
    if not hasattr(a, "k"):
        a.k = lambda y: y * 3
        return x
    return a.k(x)
return f
### method put in after an AttributeError
class A: pass
a = A()
def g(x): return x * 7
def f(x):
    try: return a.k(x)
    except AttributeError:
        a.k = g
        return x
return f
### the same in a namespace
a = types.SimpleNamespace()
def g(x): return x * 7
def f(x):
    try: return a.k(x)
    except AttributeError:
        a.k = g
        return x
return f
### the same with suppress
a = types.SimpleNamespace()
def g(x): return x * 7
def f(x):
    with contextlib.suppress(AttributeError): return a.k(x)
    a.k = g
    return x
return f
### getattr with a default
class K: v = 3
class A: pass
a = A()
def f(x):
    k = getattr(a, "k", None)
    a.k = K()
    return x * 2 if k is None else x * k.v
return f
### attribute asked for in vars
class A: pass
a = A()
def f(x):
    y = x * 2 if "k" in vars(a) else x
    a.k = A()
    return y
return f
### attribute of a class if hasattr says no
class A: pass
def f(x):
    if not hasattr(A, "k"):
        A.k = A()
        return x
    return x * 3
return f
### object over the None of a class
class K: v = 3
class Net: scale = None
n = Net()
def f(x):
    if n.scale is None:
        n.scale = K()
        return x
    return x * n.scale.v
return f
### method over a method
class A:
    def run(self, x):
        self.run = self.second
        return x * 2
    def second(self, x): return x * 5
a = A()
def f(x): return a.run(x)
return f
### settings of an object over those of a class
@dataclasses.dataclass
class Cfg: scale: float = 1.0
class T: cfg = Cfg()
t = T()
def f(x):
    y = x * t.cfg.scale
    t.cfg = dataclasses.replace(t.cfg, scale=t.cfg.scale * 2)
    return y
return f
### function over a static method
class A: op = staticmethod(al.sin)
a = A()
def f(x):
    y = a.op(x)
    a.op = al.cos
    return y
return f
### number over a number of the class
class A: n = 1
a = A()
def f(x):
    y = x * a.n
    a.n = 5
    return y
return f
### body of a class over that of a base
class K:
    def __init__(self, v): self.v = v
class A: k = K(2)
class B(A): pass
def f(x):
    y = x * B.k.v
    B.k = K(5)
    return y
return f
"""

FREE = r"""
### object put in before each read
class K:
    def __init__(self, v): self.v = v
class A:
    def go(self, x):
        self.k = K(3)
        return x * self.k.v
return A().go
### object over the None of a class before each read
class K:
    def __init__(self): self.v = 3
class A:
    k = None
    def go(self, x):
        self.k = K()
        return x * self.k.v
return A().go
### object of a namespace put in before each read
class K:
    def __init__(self): self.v = 3
a = types.SimpleNamespace()
def f(x):
    a.k = K()
    return x * a.k.v
return f
### tensors over the None of a class
class A:
    hidden = None
    def first(self, x): self.hidden = x * 2
    def go(self, x):
        self.first(x)
        return self.hidden + 1 if vars(self) else self.hidden + 1
return A().go
### tensors kept for the next layer
class A:
    def first(self, x): self.hidden = x * 2
    def go(self, x):
        self.first(x)
        return self.hidden + 1
return A().go
### object that is kept and not read
class K: pass
class A:
    last = None
    def go(self, x):
        self.last = K()
        return x * 2
return A().go
### object of a cached property
class Table:
    def __init__(self): self.weights = {"a": 2}
class A:
    @functools.cached_property
    def table(self): return Table()
    def go(self, x): return x * self.table.weights["a"]
return A().go
### tensor of a cached property
class A:
    @functools.cached_property
    def mask(self): return al.ones(1) * 2
    def go(self, x): return x * self.mask
return A().go
### method that the class gives, put on the object
class A:
    def __init__(self): self.n = 2
    def go(self, x):
        self.inner = self.inner
        return self.inner(x)
    def inner(self, x): return x * self.n
return A().go
### lock that is held for a while
lock, other = threading.Lock(), threading.RLock()
def f(x):
    with lock, other: return x * 2
return f
### last error kept
class A: error = None
a = A()
def f(x):
    try: raise ValueError("no")
    except ValueError as error: a.error = error
    return x * 2
return f
### function of aotlite put where it was
op = {"g": al.sin}
def f(x):
    op["g"] = al.sin
    return op["g"](x)
return f
### wrapper made anew
op = {"g": functools.partial(al.clamp, min=0)}
def f(x):
    op["g"] = functools.partial(al.clamp, min=0)
    return op["g"](x)
return f
"""
