"""Everyday programs with state that does not change what a call does: they compile.

Each program is the body of a function that returns the one to compile. Used by
`test_cap_programs`. Rule: CAP-14.
"""

from __future__ import annotations

PROGRAMS = r"""
### timed function
@timed
def f(x): return x*2
return f
### timed method
class A:
    @timed
    def go(self,x): return x*2
return A().go
### logged
log=logging.getLogger("ord"); log.addHandler(logging.NullHandler())
def f(x):
    log.debug("shape %s", x.shape); return x*2
return f
### hits
class Cache:
    def __init__(self): self.hits=0; self.d={}
    def get(self,k):
        self.hits+=1
        return k*2
c=Cache()
def f(x): return x*c.get(3)
return f
### dispatcher
class V:
    def __init__(self): self.calls=0
    def visit(self, k, x):
        self.calls+=1
        return getattr(self, "visit_"+k)(x)
    def visit_a(self,x): return x*2
    def report(self): return self.calls
v=V()
return lambda x: v.visit("a",x)
### lru tensorless
@functools.lru_cache
def mask(n): return tuple(range(n))
return lambda x: x*sum(mask(4))
### rope cache
class R(nn.Module):
    def __init__(self):
        super().__init__(); self.register_buffer("c", al.ones(1))
    def forward(self,x): return x*self.c
return R()
### dataclass config
@dataclasses.dataclass
class C: a:int=2; n:int=0
c=C()
def f(x): return x*c.a
return f
### strategy
class Act(enum.Enum):
    A="a"; B="b"
    def __call__(self,x): return x*2 if self is Act.A else x*3
return lambda x: Act.A(x)
### local counters
def f(x):
    n=0
    for i in range(3):
        n+=1; x=x*n
    return x
return f
### local class
def f(x):
    class S:
        def __init__(self): self.n=0
        def step(self): self.n+=1; return self.n
    s=S(); s.step()
    return x*s.step()
return f
### local gen
def f(x):
    def g():
        n=0
        while n<3: n+=1; yield n
    return x*sum(g())
return f
### ctx stack
stack=[]
@contextlib.contextmanager
def scope(n):
    stack.append(n)
    try: yield
    finally: stack.pop()
def f(x):
    with scope("a"): return x*len(stack)
return f
### nograd deco
@al.no_grad()
def f(x): return x*2
return f
### nograd method
class A:
    def __init__(self): self.calls=0
    @al.no_grad()
    def go(self,x):
        self.calls+=1
        return x*2
return A().go
### registry of functions
R={}
def register(f): R[f.__name__]=f; return f
@register
def double(x): return x*2
return lambda x: R["double"](x)
### history
class M:
    def __init__(self): self.shapes=[]; self.log=[]
    def go(self,x):
        self.shapes.append(tuple(x.shape)); self.log.append("a"); return x*2
return M().go
### hooks handles
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l=nn.Linear(1,1)
    def forward(self,x): return self.l(x)
n=Net()
with al.no_grad(): n.l.weight.fill_(2.0); n.l.bias.fill_(1.0)
return n
### training
class Tr:
    def __init__(self):
        self.w=nn.Parameter(T([1.0])); self.opt=al.optim.SGD([self.w],lr=.1); self.steps=0
    @timed
    def step(self,x):
        self.opt.zero_grad(); l=(self.w*x).sum(); l.backward(); self.opt.step(); self.steps+=1
        return l.detach()
return Tr().step
### warn once
def f(x):
    warnings.warn("w"); return x*2
return f
### lock
l=threading.Lock(); n=[0]
def f(x):
    with l: n[0]+=1
    return x*2
return f
### counter unread
c=itertools.count()
def f(x):
    return x*2
return f
### partial append
seen=[]; note=seen.append
def f(x):
    note(tuple(x.shape)); return x*2
return f
### deque hist
d=collections.deque(maxlen=5)
def f(x):
    d.append(x.shape[0]); return x*2
return f
### kwargs merge
base={"a":2}
def f(x):
    k=dict(base); k["b"]=3; k.update(c=4)
    return x*sum(k.values())
return f
### setdefault fn
t={}
def f(x):
    g=t.setdefault("g", lambda v: v*2); return g(x)
return f
### slots cls
class S:
    __slots__=("n","k")
    def __init__(self): self.n=0; self.k=3
    def go(self,x): self.n+=1; return x*self.k
return S().go
### monkey
class S:
    scale=2
def f(x):
    old=S.scale
    S.scale=3
    try: return x*S.scale
    finally: S.scale=old
return f
### callbacks
class CB:
    def __init__(self): self.events=[]
    def on(self,name,**k): self.events.append(name)
cbs=[CB(),CB()]
def f(x):
    for c in cbs: c.on("start")
    y=x*2
    for c in cbs: getattr(c,"on")("end")
    return y
return f
### profiler ctx
class Prof:
    def __init__(self): self.spans=[]
    def __call__(self,name): return self.span(name)
    @contextlib.contextmanager
    def span(self,name):
        t=time.perf_counter()
        yield
        self.spans.append((name,time.perf_counter()-t))
prof=Prof()
def f(x):
    with prof("mul"): y=x*2
    return y
return f
### lru pure
@functools.lru_cache(None)
def pure(k): return k * 2
def f(x): return x * pure(3)
return f
### ctxmgr
class C:
    depth = 0
    def __enter__(self): C.depth += 1; return self
    def __exit__(self, *a): C.depth -= 1
c = C()
def f(x):
    with c: return x * C.depth
return f
### momentum step
w = nn.Parameter(T([1.0])); opt = al.optim.SGD([w], lr=0.1, momentum=0.9)
def f(x):
    opt.zero_grad(); (w * x).sum().backward(); opt.step(); return w.detach() * 1
return f
### adam step
w = nn.Parameter(T([1.0])); opt = al.optim.AdamW([w], lr=0.1)
def f(x):
    opt.zero_grad(); (w * x).sum().backward(); opt.step(); return w.detach() * 1
return f
### bn
m = nn.BatchNorm1d(1)
def f(x): return m(x.reshape(1,1).expand(2,1))
return f
### logger only
lg = logging.getLogger("quiet"); lg.setLevel(100)
def f(x):
    lg.info("x %s", 1); return x * 2
return f
"""
