"""Everyday programs with state that changes results of later calls: near those of
`everyday_programs`, and refused or right.

Each program is the body of a function that returns the one to compile. Used by
`test_cap_everyday`. Rule: CAP-14.
"""

from __future__ import annotations

PROGRAMS = r"""
### set before it is read, from a value of the last call
class State:
    def __init__(self): self.n = self.m = 0
s = State()
def f(x):
    s.m = s.n
    s.n = s.m + 1
    return x * s.n
return f
### set before it is read, in the first call only
class State:
    def __init__(self): self.n, self.first = 5, True
s = State()
def f(x):
    if s.first: s.n, s.first = 0, False
    else: s.n = s.n + 1
    return x * s.n
return f
### list of the last call under another name, set before it is read
class State:
    def __init__(self): self.history, self.current = [], None
s = State()
def f(x):
    s.current = s.history
    s.current.append(1)
    return x * len(s.current)
return f
### learning rate of a warmup
class Trainer:
    def __init__(self):
        self.w = nn.Parameter(T([1.0])); self.opt = al.optim.SGD([self.w], lr=0.1); self.step = 0
    def train(self, x):
        self.opt.zero_grad(); (self.w * x).sum().backward(); self.opt.step()
        self.step += 1
        return self.w.detach() * self.step
return Trainer().train
### bias correction
class Ema:
    def __init__(self): self.step = 0
    def go(self, x): self.step += 1; return x / (1 - 0.9 ** self.step)
return Ema().go
### every second step
class Trainer:
    def __init__(self): self.step = 0
    def go(self, x):
        self.step += 1
        return x * 2 if self.step % 2 else x * 3
return Trainer().go
### statistics called mean, read
class Stats: mean = 1.0
st = Stats()
def f(x):
    y = x - x.mean() + st.mean
    st.mean = 3.0
    return y
return f
### mean of one of two objects
class Stats:
    def __init__(self): self.mean = 1.0
a, b = Stats(), Stats()
def f(x):
    a.mean += 1
    y = x * 0
    for each in (b, a): y = y + each.mean
    return y
return f
### dataclass compared
@dataclasses.dataclass
class State: n: int = 0
st, start = State(), State()
def f(x):
    y = x * 2 if st == start else x * 3
    st.n += 1
    return y
return f
### dataclass shown
@dataclasses.dataclass
class State: n: int = 0
st = State()
def f(x):
    st.n += 1
    return x * (2 if "n=2" in repr(st) else 3)
return f
### dataclass shown in a text
@dataclasses.dataclass
class State: n: int = 0
st = State()
def f(x):
    st.n += 1
    return x * (2 if "n=1" in f"{st}" else 3)
return f
### dataclass ordered
@dataclasses.dataclass(order=True)
class State: n: int = 0
st, limit = State(), State(2)
def f(x):
    st.n += 1
    return x * 2 if st < limit else x * 3
return f
### dataclass hashed
@dataclasses.dataclass(unsafe_hash=True)
class State: n: int = 0
st = State()
def f(x):
    st.n += 1
    return x * (hash(st) == hash(State(1)))
return f
### length of its own
class Buffer:
    def __init__(self): self.n = 0
    def __len__(self): return self.n
b = Buffer()
def f(x):
    b.n += 1
    return x * len(b)
return f
### truth of its own
class Flag:
    def __init__(self): self.n = 0
    def __bool__(self): return self.n > 1
b = Flag()
def f(x):
    b.n += 1
    return x * 2 if b else x * 3
return f
### state dict
class Meter:
    def __init__(self): self.n = 0
    def state_dict(self): return {"n": self.n}
m = Meter()
def f(x):
    m.n += 1
    return x * m.state_dict()["n"]
return f
### identifier
ids = itertools.count()
def f(x): return x * (1 + next(ids))
return f
### identifier, and one that is not used
ids = itertools.count()
def f(x):
    next(ids)
    return x * (1 + next(ids))
return f
### generator with state of others
box = [0]
def ticks():
    while True:
        box[0] += 1
        yield
t = ticks()
def f(x):
    next(t)
    return x * box[0]
return f
### generator that ends
t = (i for i in (1, 2))
def f(x):
    try: next(t)
    except StopIteration: return x * 3
    return x * 2
return f
### iterator of a list that ends
t = iter([1, 2])
def f(x):
    try: next(t)
    except StopIteration: return x * 3
    return x * 2
return f
### islice that ends
t = itertools.islice(itertools.count(), 2)
def f(x):
    try: next(t)
    except StopIteration: return x * 3
    return x * 2
return f
### iterator with a function of the user's
seen = []
t = map(seen.append, range(9))
def f(x):
    next(t)
    return x * len(seen)
return f
### logged to a handler that counts
class Handler(logging.Handler):
    def __init__(self): super().__init__(); self.big = False
    def emit(self, record): self.big = record.args[0] > 1
h = Handler(); log = logging.Logger("everyday"); log.addHandler(h)
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    log.info("step %d", st.n)
    return x * 2 if h.big else x * 3
return f
### logged by a function of the user's
class State:
    def __init__(self): self.n = self.k = 0
st = State()
def info(text, n): st.k = n
def f(x):
    st.n += 1
    info("step %d", st.n)
    return x * (1 + st.k)
return f
### logger of the user's
class Log:
    def __init__(self): self.last = 0
    def debug(self, text, n): self.last = n
log = Log()
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    log.debug("step %d", st.n)
    return x * (1 + log.last)
return f
### print of the user's
class State:
    def __init__(self): self.n = self.k = 0
st = State()
def print(text, n): st.k = n
def f(x):
    st.n += 1
    print("step %d", st.n)
    return x * (1 + st.k)
return f
### printed to a file that is read
out = io.StringIO()
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    print(st.n * "a", file=out)
    return x * len(out.getvalue())
return f
### logged and used
log = logging.Logger("everyday")
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    log.debug("step %d", k := st.n)
    return x * k
return f
### warned once, with another result
class Warner:
    def __init__(self): self.warned = False
w = Warner()
def f(x):
    if not w.warned:
        w.warned = True
        return x * 2
    return x * 3
return f
### printed once
class State: shown = False
st = State()
def f(x):
    y = x * (1 if st.shown else 2)
    if not st.shown: print("once"); st.shown = True
    return y
return f
### cached property of a counter
class Config:
    def __init__(self): self.n = 0
    @functools.cached_property
    def scale(self): self.n += 1; return self.n
c = Config()
def f(x): return x * c.scale * (1 + c.n) + c.__dict__.get("seen", 0)
return f
### cached property asked for before
class Config:
    @functools.cached_property
    def scale(self): return 3
c = Config()
def f(x):
    y = x * 2 if "scale" in vars(c) else x * 3
    return y * c.scale
return f
### cached property that writes
buf = T([1.0])
class Config:
    @functools.cached_property
    def scale(self): buf.add_(1); return 3
c = Config()
def f(x): return x * buf * c.scale
return f
### cached property that takes the argument
class Config:
    @functools.cached_property
    def scale(self): return [3]
c = Config()
def f(x):
    c.scale.append(1)
    return x * len(c.scale)
return f
### cached property that draws
import random
class Config:
    @functools.cached_property
    def scale(self): return al.full((1,), 2.0) * step["n"]
step = {"n": 0}
c = Config()
def f(x):
    step["n"] += 1
    return x * c.scale
return f
### early stopping
class Stopper:
    def __init__(self): self.count = 0
    @property
    def is_over(self): return self.count > 1
s = Stopper()
def f(x):
    s.count += 1
    return x * 0 if s.is_over else x
return f
### best value so far
class Best:
    def __init__(self): self.value = 0
    def update(self, v):
        if v > self.value: self.value = v; return True
        return False
b = Best()
def f(x): return x * 2 if b.update(3) else x * 3
return f
### linked objects
class Node:
    def __init__(self, k): self.k = k
a, b, c = Node(1), Node(2), Node(3)
a.nxt, b.nxt, c.nxt = b, c, a
class State: pass
s = State(); s.cur = a
def f(x):
    s.cur = s.cur.nxt
    y = x * s.cur.k
    s.cur = s.cur.nxt
    return y
return f
### linked objects, in a list
class Node:
    def __init__(self, k): self.k = k
nodes = [Node(1), Node(2), Node(3)]
class State: pass
s = State(); s.cur = nodes[0]
def f(x):
    y = x * s.cur.k
    s.cur = nodes[1] if s.cur is nodes[0] else nodes[2]
    return y
return f
### read in a method under another name
class State:
    def __init__(self): self.n = 0
st = State(); other = st
def f(x):
    st.n += 1
    return x * other.n
return f
### read by a getter of the class
class State:
    def __init__(self): self.n = 0
    def __getattr__(self, name): return self.n if name == "count" else 0
st = State()
def f(x):
    st.n += 1
    return x * st.count
return f
### read by __getattribute__
class State:
    def __init__(self): self.n = 0
    def __getattribute__(self, name): return object.__getattribute__(self, name)
st = State()
def f(x):
    st.n += 1
    return x * st.n
return f
### class counter read of an instance
class State: n = 0
st = State()
def f(x):
    State.n += 1
    return x * st.n
return f
### class counter hidden by an instance
class State: n = 0
a, b = State(), State()
def f(x):
    y = x * (1 + a.n)
    a.n = State.n + 1
    State.n += 1
    return y
return f
### read in a backward
class State:
    def __init__(self): self.n = 0
st = State(); w = nn.Parameter(T([1.0]))
class Scaled(al.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, grad): return grad * st.n
def f(x):
    w.grad = None
    st.n += 1
    Scaled.apply(w * x).sum().backward()
    return w.grad * 1
return f
### read in a hook
class State:
    def __init__(self): self.n = 0
st = State(); w = nn.Parameter(T([1.0]))
def f(x):
    w.grad = None
    st.n += 1
    y = w * x
    y.register_hook(lambda g: g * st.n)
    y.sum().backward()
    return w.grad * 1
return f
### read by a thread
class State:
    def __init__(self): self.n = 0; self.k = 0
st = State()
def work(): st.k = st.n
def f(x):
    st.n += 1
    t = threading.Thread(target=work); t.start(); t.join()
    return x * st.k
return f
### read by a comprehension of a generator
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    return x * sum(s.n for s in [st])
return f
### copied
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    return x * copy.deepcopy(st).n
return f
### class swapped meanwhile
class A:
    def __init__(self): self.n = 0
class B(A): pass
a = A()
def f(x):
    a.n += 1
    a.__class__ = B if type(a) is A else A
    return x * a.n
return f
### read in a callback of each call
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    return al.effects.callback(lambda a: a * st.n, x, results="f32[1]")
return f
### read in a backward of each call
class State:
    def __init__(self): self.n = 0
st = State(); w = nn.Parameter(T([1.0]))
class Scaled(al.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, grad): return grad * st.n
def f(x):
    st.n += 1
    return Scaled.apply(w * x)
def g(x):
    w.grad = None
    f(x).sum().backward()
    return w.grad * 1
return g
### read where a saved tensor is unpacked
class State:
    def __init__(self): self.n = 0
st = State(); w = nn.Parameter(T([1.0]))
def f(x):
    w.grad = None
    st.n += 1
    with al.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * st.n):
        y = (w * x).exp()
    y.sum().backward()
    return w.grad * 1
return f
### read by a format
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    return x * int("{0.n}".format(st))
return f
### read by a text that is computed
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    return x * getattr(st, "N".lower())
return f
### read by a sorting key
class State:
    def __init__(self, n): self.n = n
a, b = State(0), State(1)
def f(x):
    a.n += 1
    return x * (2 if sorted([b, a], key=operator.attrgetter("n"))[0] is a else 3)
return f
### read in a region that is recomputed
class State:
    def __init__(self): self.n = 0
st = State(); w = nn.Parameter(T([1.0]))
def f(x):
    w.grad = None
    st.n += 1
    al.checkpoint(lambda a: (a * st.n).exp(), w * x).sum().backward()
    return w.grad * 1
return f
### body of a class that is looked through
class State:
    n = 0
    k = 3
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    k = sum(v for v in vars(type(st)).values() if isinstance(v, int))
    return x * (st.n + k)
return f
### names that are listed
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    y = x * len([each for each in dir(st) if not each.startswith("_")])
    st.m = 1
    return y
return f
### two objects of a class, the other one first
class State:
    def __init__(self, nxt=None): self.n, self.nxt = 0, nxt
b = State(); a = State(b)
def f(x):
    a.n += 1
    a.nxt.n += 2
    return x * (a.n + b.n)
return f
### functions that change places
def mk(k):
    def g(x): return x * k
    return g
gs = [mk(2), mk(3)]
class State: cur = gs[0]
st = State(); st.cur = gs[0]
def f(x):
    y = st.cur(x)
    st.cur = gs[1] if st.cur is gs[0] else gs[0]
    return y
return f
### Modules that change places
class Scale(nn.Module):
    def __init__(self, k): super().__init__(); self.k = k
    def forward(self, x): return x * self.k
ms = [Scale(2), Scale(3)]
class State: pass
st = State(); st.cur = ms[0]
def f(x):
    y = st.cur(x)
    st.cur = ms[1] if st.cur is ms[0] else ms[0]
    return y
return f
### cached property that requires grad
w = nn.Parameter(T([1.0]))
class Config:
    @functools.cached_property
    def scale(self): w.requires_grad_(False); return 3
c = Config()
def f(x):
    y = x * c.scale * int(w.requires_grad + 1)
    return y
return f
### cached property of a text that is longer
class Config:
    def __init__(self): self.n = 0
    @functools.cached_property
    def scale(self): return 2
c = Config()
def f(x):
    y = x * (c.scale + (2 if hasattr(c, "seen") else 0)) * len(c.__dict__)
    c.seen = True
    return y
return f
### read by a base class of a package
class Q(queue.Queue):
    def __init__(self): super().__init__(); self.maxsize = 2
q = Q()
def f(x):
    q.maxsize += 1
    for _ in range(9):
        try: q.put_nowait(1)
        except queue.Full: break
    return x * q.qsize()
return f
### read by a text that is code
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    return x * eval("st.n", {"st": st})
return f
### read by statements that are a text
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    names = {"st": st}; exec("k = st.n", names)
    return x * names["k"]
return f
"""
