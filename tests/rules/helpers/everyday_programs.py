"""Everyday programs with state that changes no result of a later call: each compiles.

Each program is the body of a function that returns the one to compile. Used by
`test_cap_everyday`. Rule: CAP-14.
"""

from __future__ import annotations

PROGRAMS = r"""
### trainer whose counter is called step
class Trainer:
    def __init__(self):
        self.w = nn.Parameter(T([1.0])); self.opt = al.optim.SGD([self.w], lr=0.1); self.step = 0
    def train(self, x):
        self.opt.zero_grad(); loss = (self.w * x).sum(); loss.backward()
        self.opt.step()
        self.step += 1
        return loss.detach()
return Trainer().train
### trainer with a scheduler of its own
class Trainer:
    def __init__(self):
        self.w = nn.Parameter(T([1.0])); self.opt = al.optim.SGD([self.w], lr=0.1)
        self.step = self.epoch = 0
    def fit(self, x):
        for _ in range(2):
            self.opt.zero_grad(); (self.w * x).sum().backward(); self.opt.step()
            self.step += 1
        self.epoch += 1
        return self.w.detach() * 1
return Trainer().fit
### closure over a state whose step is a counter
class State: step = 0
st = State(); w = nn.Parameter(T([1.0])); opt = al.optim.SGD([w], lr=0.1)
def f(x):
    opt.zero_grad(); (w * x).sum().backward(); opt.step(); st.step += 1
    return w.detach() * 1
return f
### statistics called mean
class Stats: mean = None
st = Stats()
def f(x):
    st.mean = 3.0
    return x - x.mean()
return f
### statistics called mean, counted
class Stats:
    def __init__(self): self.mean = 0
st = Stats()
def f(x):
    st.mean += 1
    return x + x.mean()
return f
### the last shape
class State: shape = None
st = State()
def f(x):
    st.shape = tuple(x.shape)
    return x * x.shape[0]
return f
### the last dtype
class State: dtype = None
st = State()
def f(x):
    st.dtype = str(x.dtype)
    return x.to(x.dtype)
return f
### size that is set before it is read
class Model:
    def __init__(self): self.n = 0
    def forward(self, x):
        self.n = x.shape[0]
        return x * self.n
return Model().forward
### settings that are set in each call
class Config: pass
config = Config()
def scaled(x): return x * config.scale + config.bias
def f(x):
    config.scale, config.bias = 2.0, 1.0
    return scaled(x)
return f
### value that is there for the time of a call
class Scope: __slots__ = ("current",)
scope = Scope(); scope.current = "outside"
def label(x): return x * len(scope.current)
def f(x):
    scope.current = "inside"
    y = label(x)
    scope.current = None
    return y
return f
### two meters
class Meter:
    def __init__(self, scale): self.n, self.scale = 0, scale
train, fixed = Meter(2), Meter(3)
def f(x):
    train.n += 1
    return x * (fixed.n + fixed.scale)
return f
### meters of two classes
class Seen:
    def __init__(self): self.count = 0
class Config:
    count = 4
seen, config = Seen(), Config()
def f(x):
    seen.count += 1
    return x * config.count
return f
### a counter called as a method of a list
class State:
    def __init__(self): self.index = 0
st, names = State(), ["a", "b"]
def f(x):
    st.index += 1
    return x * (1 + names.index("b"))
return f
### a counter called as a function of a module
import math
class State:
    def __init__(self): self.sqrt = 0
st = State()
def f(x):
    st.sqrt += 1
    return x * math.sqrt(4.0)
return f
### a size called size
class State: size = 0
st = State()
def f(x):
    st.size = x.shape[0] + 4
    return x * x.size(0)
return f
### dataclass state
@dataclasses.dataclass
class State:
    n: int = 0
    k: int = 2
st = State()
def f(x):
    st.n += 1
    return x * st.k
return f
### dataclass state with a list
@dataclasses.dataclass
class State:
    losses: list = dataclasses.field(default_factory=list)
    k: int = 2
st = State()
def f(x):
    st.losses.append(1); st.losses = st.losses[:0]
    return x * st.k
return f
### dataclass with order
@dataclasses.dataclass(order=True)
class State:
    n: int = 0
st = State()
def f(x):
    st.n += 1
    return x * 2
return f
### dataclass method
@dataclasses.dataclass
class Meter:
    total: float = 0.0
    count: int = 0
    def update(self, v): self.total += v; self.count += 1
    @property
    def mean(self): return self.total / max(self.count, 1)
m = Meter()
def f(x):
    m.update(1.0)
    return x - x.mean()
return f
### slotted dataclass
@dataclasses.dataclass(slots=True)
class State:
    n: int = 0
    k: int = 2
st = State()
def f(x):
    st.n += 1
    return x * st.k
return f
### attrs state
import attrs
@attrs.define
class State:
    n: int = 0
    k: int = 2
st = State()
def f(x):
    st.n += 1
    return x * st.k
return f
### repr of its own
class Meter:
    def __init__(self): self.n = 0
    def __repr__(self): return f"Meter({self.n})"
m = Meter()
def f(x):
    m.n += 1
    return x * 2
return f
### len of its own
class Buffer:
    def __init__(self): self.n, self.k = 0, 3
    def __len__(self): return self.n
    def push(self): self.n += 1
b = Buffer()
def f(x):
    b.push()
    return x * b.k
return f
### comparison of its own
class Version:
    def __init__(self): self.n = 0
    def __eq__(self, other): return self.n == other.n
    __hash__ = object.__hash__
v = Version()
def f(x):
    v.n += 1
    return x * 2
return f
### state dict of its own
class Meter:
    def __init__(self): self.n = 0
    def state_dict(self): return {"n": self.n}
    def load_state_dict(self, d): self.n = d["n"]
class Net(nn.Module):
    def __init__(self): super().__init__(); self.w = nn.Parameter(T([2.0]))
    def forward(self, x): return x * self.w
net, m = Net(), Meter()
def f(x):
    m.n += 1
    return net(x) * len(net.state_dict())
return f
### report that a branch would print
class Meter:
    def __init__(self): self.n = 0
    def report(self): return self.n
m, verbose = Meter(), False
def f(x):
    m.n += 1
    if verbose: print(m.report())
    return x * 2
return f
### debug branch that reads
class State:
    def __init__(self): self.n = 0
st, debug = State(), False
def f(x):
    st.n += 1
    if debug: print(st.n)
    return x * 2
return f
### counter of calls by itertools
ids = itertools.count()
def f(x):
    next(ids)
    return x * 2
return f
### counter of calls of an object
class Counted:
    def __init__(self): self.ids = itertools.count()
    def go(self, x):
        next(self.ids)
        return x * 2
return Counted().go
### generator that is moved on
def ticks():
    while True: yield
t = ticks(); next(t)
def f(x):
    next(t)
    return x * 2
return f
### stored identifier
ids = itertools.count()
class State: last = None
st = State()
def f(x):
    next(ids, None)
    return x * 2
return f
### logged counter
log = logging.Logger("everyday"); log.addHandler(logging.NullHandler())
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    log.debug("step %d", st.n)
    return x * 2
return f
### logged counter in a method
log = logging.getLogger("everyday.method")
class Trainer:
    def __init__(self): self.n = 0
    def go(self, x):
        self.n += 1
        log.debug("step %d of %s", self.n, "f")
        return x * 2
return Trainer().go
### printed counter
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    print("step", st.n)
    return x * 2
return f
### printed text
class State:
    def __init__(self): self.n = 0
st = State()
def f(x):
    st.n += 1
    print(f"step {st.n}: {st.n * 2}")
    return x * 2
return f
### logged global
steps = {"n": 0}; log = logging.Logger("everyday")
def f(x):
    steps["n"] += 1
    log.info(f"step {steps['n']}")
    return x * 2
return f
### timer
class Timer:
    def __init__(self): self.t = 0.0
    def go(self, x):
        t0 = time.perf_counter()
        y = x * 2
        self.t += time.perf_counter() - t0
        return y
return Timer().go
### timer that stores its start
class Timer:
    def __init__(self): self.start = 0.0; self.total = 0.0
    def __enter__(self): self.t0 = 1.0; return self
    def __exit__(self, *e): self.total += 1.0
timer = Timer()
def f(x):
    with timer: return x * 2
return f
### cached property
class Config:
    def __init__(self): self.dim = 4
    @functools.cached_property
    def scale(self): return self.dim ** -0.5
c = Config()
def f(x): return x * c.scale
return f
### cached property read twice
class Config:
    def __init__(self): self.dim = 4
    @functools.cached_property
    def names(self): return ("a", "b")
    def width(self): return len(self.names) * self.dim
c = Config()
def f(x): return x * c.width() * len(c.names)
return f
### cached property read before
class Config:
    def __init__(self): self.dim = 4
    @functools.cached_property
    def scale(self): return self.dim ** -0.5
c = Config(); c.scale
def f(x): return x * c.scale
return f
### EMA of tensors
shadow, w = T([1.0]), T([3.0])
class Ema:
    def __init__(self): self.updates = 0; self.decay = 0.5
    def update(self, old, new): old.mul_(self.decay).add_(new * (1 - self.decay)); self.updates += 1
    def __repr__(self): return f"Ema({self.decay}, {self.updates})"
e = Ema()
def f(x):
    e.update(shadow, w)
    return x * shadow
return f
### registry of hits
class Registry:
    def __init__(self): self.table = {"double": lambda x: x * 2}; self.hits = 0
    def get(self, name): self.hits += 1; return self.table[name]
    def __repr__(self): return f"{self.hits} hits"
r = Registry()
def f(x): return r.get("double")(x)
return f
### cache of functions with counts
class Cache:
    def __init__(self): self.hits = self.misses = 0; self.items = {"k": 3}
    def get(self, k):
        if k in self.items: self.hits += 1
        else: self.misses += 1
        return self.items[k]
c = Cache()
def f(x): return x * sum(v for v in [c.get("k")]) * len(dict(a=1).items())
return f
### callback that notes the last name
class Callback:
    def __init__(self): self.last = None; self.name = "c"
    def on_step(self, name): self.last = name
    def __str__(self): return str(self.last)
cbs = [Callback(), Callback()]
def f(x):
    for c in cbs: c.on_step("step")
    return x * len(cbs)
return f
### early stopping that only counts
class Stopper:
    def __init__(self): self.count = 0; self.patience = 3
    def seen(self): self.count += 1
    @property
    def is_over(self): return self.count > self.patience
s = Stopper()
def f(x):
    s.seen()
    return x * s.patience
return f
### number of samples
class Loader:
    def __init__(self): self.samples = 0; self.batch = 8
    def count(self, x): self.samples += x.shape[0] * self.batch
l = Loader()
def f(x):
    l.count(x)
    return x * l.batch
return f
### profiler with spans
class Span:
    def __init__(self, p): self.p = p
    def __enter__(self): self.p.depth += 1; return self
    def __exit__(self, *e): self.p.depth -= 1; self.p.spans += 1
class Profiler:
    def __init__(self): self.depth = 0; self.spans = 0
    def __repr__(self): return f"{self.spans} spans"
p = Profiler()
def f(x):
    with Span(p): return x * 2
return f
### last loss
class Tracker:
    def __init__(self): self.last = 0.0; self.best = 1.0
    def __str__(self): return f"{self.last} {self.best}"
t = Tracker()
def f(x):
    t.last = 0.5
    return x * t.best
return f
### named tuple beside a counter of its field
P = collections.namedtuple("P", "n k")
class State:
    def __init__(self): self.n = 0
p, st = P(2, 3), State()
def f(x):
    st.n += 1
    return x * p.n * p.k
return f
### enum beside a counter called value
class Mode(enum.Enum): A = 2
class State:
    def __init__(self): self.value = 0
st = State()
def f(x):
    st.value += 1
    return x * Mode.A.value
return f
### inner object under the same name
class Inner:
    def __init__(self): self.count = 5
class Outer:
    def __init__(self): self.inner = Inner(); self.count = 0
    def go(self, x):
        self.count += 1
        return x * self.inner.count
return Outer().go
### subclass beside its base
class Base:
    def __init__(self): self.n = 1
class Sub(Base): pass
a, b = Base(), Sub()
def f(x):
    a.n += 1
    return x * b.n
return f
"""
