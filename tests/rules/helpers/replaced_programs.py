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
"""

FREE = r"""
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
