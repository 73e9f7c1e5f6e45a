"""Everyday programs that change an order, or what a table holds, and read neither: they compile.

Each program is the body of a function that returns the one to compile. Used by
`test_cap_order`. Rule: CAP-14.
"""

from __future__ import annotations

PROGRAMS = r"""
### a cache of the most recent
cache = collections.OrderedDict((k, T([float(k)])) for k in range(4))
def get(k):
    if k in cache:
        cache.move_to_end(k)
        return cache[k]
    cache[k] = T([float(k)])
    return cache[k]
def f(x): return x * get(1)
return f
### a cache of the most recent, with a limit
cache = collections.OrderedDict((k, T([float(k)])) for k in range(4))
def get(k):
    if k in cache:
        cache.move_to_end(k)
    if len(cache) > 4:
        cache.popitem(last=False)
    return cache[k]
def f(x): return x * get(1)
return f
### a cache by pop and set
cache = {k: k * 2 for k in range(4)}
def get(k):
    value = cache.pop(k)
    cache[k] = value
    return value
def f(x): return x * get(1)
return f
### an existing key
d = {"a": 1, "b": 2}
def f(x):
    d["a"] = 1
    return x * d["a"]
return f
### an existing key, in a loop
d = {"a": 1, "b": 2}
def f(x):
    d["a"] = 1
    for k in d: x = x * d[k]
    return x
return f
### losses
losses = []
def f(x):
    losses.append(float(x.shape[0]))
    return x * 2
return f
### losses, if there is a list
class Run:
    def __init__(self, log): self.log = log
    def step(self, x):
        if self.log is not None: self.log.append(x.shape[0])
        return x * 2
return Run([]).step
### a list that is there
class Run:
    def __init__(self): self.log = []
    def step(self, x):
        has = self.log is None
        self.log.append(1)
        return x * (2 if has else 3)
return Run().step
### a recent history
seen = collections.deque([1, 2, 3], maxlen=3)
def f(x):
    seen.append(5)
    return x * 2
return f
### a window
seen = collections.deque([1, 2, 3])
def f(x):
    seen.append(4)
    seen.popleft()
    return x * len(seen)
return f
### a rotation that nobody sees
turns = collections.deque(["a", "b"])
def f(x):
    turns.rotate(1)
    return x * 2
return f
### the number of keys
d = {"a": 1, "b": 2}
def f(x):
    d["a"] = d.pop("a")
    return x * len(d)
return f
### the number of items
d = {"a": 1, "b": 2}
def f(x):
    d["a"] += 1
    return x * len(d)
return f
### keys in order of their names
d = {"b": 1, "a": 2}
def f(x):
    d["b"] = d.pop("b")
    for k in sorted(d): x = x * d[k]
    return x
return f
### items in order of their names
d = {"b": 1, "a": 2}
def f(x):
    d["b"] = d.pop("b")
    for k, v in sorted(d.items()): x = x * v
    return x
return f
### a condition
d = {"b": 1, "a": 2}
def f(x):
    d["b"] = d.pop("b")
    if d: return x * 2
    return x
return f
### a condition, and a count
d = {"b": 1}
def f(x):
    d["b"] += 1
    return x * 2 if d and not not d else x
return f
### a key that is asked
d = {"b": 1, "a": 2}
def f(x):
    d["b"] = d.pop("b")
    return x * (2 if "a" in d else 3)
return f
### another container
first, second = {"a": 1, "b": 2}, {"a": 1, "b": 2}
def f(x):
    first["a"] = first.pop("a")
    return x * list(second.values())[0]
return f
### a registry of functions
table = {}
def f(x):
    act = table.setdefault("act", lambda v: v * 2)
    return act(x)
return f
### a state that is made anew
class State:
    def __init__(self, k): self.k = k
class Run:
    def __init__(self): self.state = State(3)
    def step(self, x):
        self.state = State(3)
        return x * self.state.k
return Run().step
### a function that is made anew
class Run:
    def __init__(self): self.act = self.fresh(3)
    def fresh(self, k): return lambda x: x * k
    def step(self, x):
        self.act = self.fresh(3)
        return self.act(x)
return Run().step
### a method that is set again
class Run:
    def __init__(self): self.act = self.twice
    def twice(self, x): return x * 2
    def step(self, x):
        self.act = self.twice
        return self.act(x)
return Run().step
### a dtype that is set again
class Run:
    def __init__(self): self.dtype = al.float32
    def step(self, x):
        self.dtype = al.float32
        return x.to(self.dtype)
return Run().step
### swapped and swapped back
pair = [al.float32, al.float64]
def f(x):
    pair.reverse()
    pair.reverse()
    return x.to(pair[0])
return f
### a stack of scopes
scopes = ["top"]
def f(x):
    scopes.append("inner")
    try: return x * len(scopes[-1])
    finally: scopes.pop()
return f
### a set of the seen
seen = {"a"}
def f(x):
    seen.add("a")
    return x * len(seen)
return f
### a local dict
def f(x):
    d = {"a": 2, "b": 3}
    d["a"] = d.pop("a")
    return x * next(iter(d.values()))
return f
### an attribute that is deleted and set
class A: pass
a = A(); a.n = 2; a.m = 3
def f(x):
    n = a.n
    del a.n
    a.n = n
    return x * a.n
return f
### an array of objects
table = __import__("numpy").array([al.float32, al.float64], dtype=object)
def f(x):
    table[0] = al.float32
    return x.to(table[0])
return f
### a table that loses what is old
cache = {k: T([float(k)]) for k in range(3)}
def get(k):
    if k not in cache:
        cache.pop(min(cache))
        cache[k] = T([float(k)])
    return cache[k]
def f(x): return x * float(len(str(get(2).shape)))
return f
### an object that is put into a table and taken out again
table = {}
class K: pass
def f(x):
    table["k"] = K()
    table.pop("k")
    return x * 2
return f
### a function that is taken and put back
table = {"act": lambda v: v * 2}
def f(x):
    act = table.pop("act")
    table["act"] = act
    return act(x)
return f
### a list of hooks that grows
hooks = []
def note(v): return v
def f(x):
    hooks.append(note)
    return x * 2
return f
"""
