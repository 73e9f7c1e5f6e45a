"""DYN-24: `regions(witnesses=True)` leaves no trace: what may write outside does not run again."""

from __future__ import annotations

import builtins
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import logging
import math
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.pipeline.size_regions.proof.python_writes import first_write

Function = Callable[..., Any]


class State:
    """All that the functions of the table write."""

    v: object = None
    shared: object = None

    def __init__(self) -> None:
        self.items: list[object] = []
        self.table: dict[object, object] = {}
        self.kinds: set[object] = set()
        self.recent: Any = collections.deque(maxlen=4)
        self.default: Any = collections.defaultdict(list)
        self.numbers = np.zeros(8)
        self.lines: list[str] = []
        self.count = itertools.count()
        self.slot = types.SimpleNamespace(v=None)

    def put(self, value: object) -> None:
        self.v = value

    def write(self, text: str) -> int:
        self.lines.append(text)
        return len(text)

    def flush(self) -> None:
        """For `print(file=)`."""

    def seen(self) -> str:
        """All of it as a text."""
        parts = {**vars(self), "shared": State.shared, "global": GLOBAL, "count": None}
        return repr((sorted(map(str, parts.items())), copy.copy(self.count)))


GLOBAL: object = None
STATE = State()


class Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        STATE.lines.append(record.getMessage())


LOG = logging.getLogger("aotlite_test_report")
LOG.addHandler(Handler())
LOG.propagate = False


def set_global(value: object) -> None:
    global GLOBAL
    GLOBAL = value


def put_item(table: Any, key: object, value: object) -> None:
    table[key] = value


def counter() -> tuple[Function, Function]:
    total = 0

    def count(value: object) -> None:
        nonlocal total
        total += 1 if value else 2

    return count, lambda: total


COUNT, TOTAL = counter()


class Entered:
    def __enter__(self) -> None:
        STATE.v = "entered"

    def __exit__(self, *_: object) -> None:
        """Nothing."""


class Watched:
    def __init__(self) -> None:
        self.read: list[object] = []

    @property
    def value(self) -> int:
        self.read.append(1)
        STATE.items.append("read")
        return 2


class Noted:
    """Each way in which Python calls it writes."""

    def __init__(self) -> None:
        STATE.items.append("made")

    def __del__(self) -> None:
        STATE.items.append("gone")


class Shown(Watched):
    def __repr__(self) -> str:
        STATE.items.append("shown")
        return "Shown()"

    def _called(self, *_: Any) -> Any:
        STATE.items.append("called")
        return 1

    __call__ = __len__ = __iter__ = __getattr__ = __eq__ = __add__ = __hash__ = _called

    def __bool__(self) -> bool:
        STATE.items.append("asked")
        return True


class Registered:
    def __init_subclass__(cls) -> None:
        STATE.items.append("subclass")


SHOWN = Shown()
WATCHED = Watched()
APPEND = STATE.items.append
PRINT = functools.partial(print, file=STATE)
WRITES: dict[str, Callable[[object], object]] = {
    "attribute": lambda v: setattr_by_code(v),
    "method": lambda v: STATE.put(v),
    "global in a helper": set_global,
    "item": lambda v: put_item(STATE.table, "z", v),
    "dict.update": lambda v: STATE.table.update(z=v),
    "dict.setdefault": lambda v: STATE.table.setdefault(v, 1),
    "dict.pop": lambda v: STATE.table.pop(v, None) or STATE.table.update({v: 1}),
    "list.append": lambda v: STATE.items.append(v),
    "bound append": APPEND,
    "list +=": lambda v: extended(v),
    "set.add": lambda v: STATE.kinds.add(v),
    "deque": lambda v: STATE.recent.appendleft(v),
    "defaultdict": lambda v: STATE.default[v],
    "array": lambda v: put_item(STATE.numbers, int(bool(v)), 1.0),
    "item of a tuple": lambda v: put_item(STATE.table, (v, 1), v),
    "items by a tuple": lambda v: put_tuple(STATE.table, v),
    "deleted": lambda v: deleted(v),
    "numpy.put": lambda v: np.put(STATE.numbers, [int(bool(v))], 1.0),
    "print": lambda v: print(v, file=STATE),
    "partial of print": lambda v: PRINT(v),
    "sys.stdout": lambda v: sys.stdout.write(str(v)),
    "logger": lambda v: LOG.warning("%s", v),
    "logger by its name": lambda v: logging.getLogger("aotlite_test_report").warning("%s", v),
    "warning": lambda v: warnings.warn(str(v), stacklevel=2),
    "setattr": lambda v: setattr(STATE, "v", v),
    "builtins.setattr": lambda v: builtins.setattr(STATE, "v", v),
    "object.__setattr__": lambda v: object.__setattr__(STATE, "v", v),
    "__dict__": lambda v: STATE.__dict__.update(v=v),
    "vars": lambda v: vars(STATE).update(v=v),
    "globals": lambda v: globals().update(GLOBAL=v),
    "exec": lambda v: exec("STATE.v = v", {"STATE": STATE, "v": v}),
    "class attribute": lambda v: set_shared(v),
    "setattr of the class": lambda v: setattr(type(STATE), "shared", v),
    "counter in a closure": COUNT,
    "namespace": lambda v: set_slot(v),
    "iterator": lambda v: next(STATE.count) if v else None,
    "random": lambda v: random.random() if v else None,
    "context manager": lambda v: entered(v),
    "property": lambda v: WATCHED.value if v else None,
    "getattr": lambda v: getattr(STATE, "pu" + "t")(v),
    "list.append of the class": lambda v: list.append(STATE.items, v),
    "map": lambda v: list(map(STATE.put, [v])),
    "default": lambda v, items=STATE.items: items.append(v),  # type: ignore[misc]
    "import": lambda v: imported(v),
    "open": lambda v: open("/dev/null", "a").close(),
    "made": lambda v: Noted() if v else None,
    "shown": lambda v: f"{SHOWN}" if v else None,
    "called": lambda v: SHOWN() if v else None,
    "added": lambda v: SHOWN + 1 if v else None,
    "asked": lambda v: SHOWN == 1 if v else None,
    "got": lambda v: SHOWN.absent if v else None,  # type: ignore[attr-defined]
    "hashed": lambda v: {SHOWN: 1} if v else None,
    "truth": lambda v: 1 if v and SHOWN else None,
    "subclass": lambda v: registered() if v else None,
    "seed": lambda v: al.manual_seed(int(bool(v))),
}


def put_tuple(table: Any, value: object) -> None:
    table[value, 1] = value


def deleted(value: object) -> None:
    STATE.table[value, 1] = value
    del STATE.table[value, 1]
    STATE.shared = value
    del STATE.shared


def setattr_by_code(value: object) -> None:
    STATE.v = value


def extended(value: object) -> None:
    items = STATE.items
    items += [value]


def set_shared(value: object) -> None:
    State.shared = value


def set_slot(value: object) -> None:
    STATE.slot.v = value


def entered(value: object) -> None:
    if value:
        with Entered():
            pass


def registered() -> type:
    class Inner(Registered):
        pass

    return Inner


def imported(value: object) -> None:
    from sys import stdout

    stdout.write(str(value))


def branching(write: Callable[[object], object]) -> Function:
    def f(x: al.Tensor) -> al.Tensor:
        if x.shape[0] > 3:
            write("many")
        else:
            write("")
        return x * 2

    return f


def valued(write: Callable[[object], object]) -> Function:
    def f(x: al.Tensor) -> al.Tensor:
        write("many" if x.shape[0] > 3 else "")
        return x * 2

    return f


def alone(write: Callable[[object], object]) -> Function:
    def f(x: al.Tensor) -> al.Tensor:
        if x.shape[0] > 3:
            write("many")
        return x * 2

    return f


def reset() -> None:
    for each in (STATE.items, STATE.table, STATE.kinds, STATE.recent, STATE.lines, STATE.default):
        each.clear()
    STATE.v = STATE.slot.v = State.shared = None
    STATE.numbers[:] = 0
    set_global(None)


def snapshot(capsys: Any) -> object:
    out = capsys.readouterr()
    states = STATE.seen(), TOTAL(), len(WATCHED.read), random.getstate(), str(al.get_rng_state())
    return *states, out.out, out.err


@pytest.mark.rules("DYN-24")
@pytest.mark.thinned(7)
@pytest.mark.parametrize("form", [branching, valued, alone], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.filterwarnings("ignore")
def test_the_report_changes_nothing_and_drops_no_guard(
    name: str, form: Callable[..., Function], capsys: pytest.CaptureFixture[str]
) -> None:
    """A call at sizes of the other way writes what it would write without the report."""
    found = []
    for is_asked in (False, True):
        reset()
        compiled = al.compile(form(WRITES[name]), dynamic=True, backend="reference")
        try:
            compiled(al.ones(5))
        except al.UnsupportedError:  # what it changes is read, or is not allowed in a capture
            return
        before = snapshot(capsys)
        if is_asked:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                (region,) = compiled.regions(witnesses=True)
            assert not caught
            assert region.unknown or not region.guards
            assert snapshot(capsys)[-7:] == (*before[:-2], "", "")  # type: ignore[index]
        guards = [guard.text for guard in compiled.regions()[0].guards]
        total = TOTAL()
        compiled(al.ones(2))
        after = STATE.v, STATE.items[:], {**STATE.table}, STATE.lines[:], GLOBAL, State.shared
        found.append((guards, after, TOTAL() - total))
    assert found[0] == found[1]


@pytest.mark.rules("DYN-24")
def test_the_report_names_the_line_that_writes() -> None:
    compiled = al.compile(branching(STATE.put), dynamic=True, backend="reference")
    compiled(al.ones(5))
    (region,) = compiled.regions(witnesses=True)
    assert "sets the attribute 'v'" in region.unknown and "self.v = value" in region.unknown
    assert "not examined" in repr(compiled.regions(witnesses=True))


@pytest.mark.rules("DYN-24")
def test_a_pass_that_writes_does_not_run_again() -> None:
    def noting(graph: Any) -> Any:
        STATE.items.append(graph)
        return graph

    compiled = al.compile(lambda x: x * 2, dynamic=True, backend="reference", passes=[noting])
    compiled(al.ones(5))
    count = len(STATE.items)
    compiled.regions(witnesses=True)
    assert len(STATE.items) == count


# --------------------------------------------------------------------------- what only computes
SCALES = [2.0, 3.0]
CONFIG: dict[str, Any] = {"eps": 1e-5, "powers": [1, 2]}
RATES = np.arange(3)


class Kind(enum.Enum):
    LARGE = 2


@dataclasses.dataclass(frozen=True)
class Config:
    scale: float = 2.0
    names: tuple[str, ...] = ("a",)


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any

    def total(self) -> Any:
        return self.first + self.second


class Holder:
    def __init__(self, value: Any) -> None:
        self.value, self.items = value, []
        self.items.append(value)

    def __enter__(self) -> Any:
        return self.value

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    @property
    def doubled(self) -> Any:
        return self.value * 2


class Double(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.factor = 2
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.factor


class Block(al.nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        print("made", end="")
        self.layers = al.nn.ModuleList([al.nn.Linear(width, width) for _ in range(2)])
        for k in range(2):
            self.add_module(f"norm{k}", al.nn.LayerNorm(width))
        self.bn = al.nn.BatchNorm1d(width)
        self.config, self.log = Config(), LOG
        self.cached: dict[str, object] = {}

    def count(self) -> None:
        self.cached["count"] = 1

    def forward(self, x: Any) -> Any:
        outs = []
        for k, layer in enumerate(self.layers):
            x = getattr(self, f"norm{k}" if False else "norm0")(layer(x))
            outs.append(x * self.config.scale)
        return self.bn(al.stack(outs).sum(0))


def lists(x: Any) -> Any:
    outs = []
    table = {}
    seen = set()
    for scale in SCALES:
        outs.append(x * scale)
        table[scale] = x + scale
        seen.add(scale)
    outs += [table[2.0]]
    counts = [0] * 3
    counts[1] += 2
    counts[0] = len(seen)
    return sum(outs) * counts[1]


def writes_tensors(x: Any) -> Any:
    x = x * 1
    for power in CONFIG["powers"]:
        x = x**power
    x[1:, 0] = 0
    return x


def writes_parts(x: Any) -> Any:
    x = x * 1
    x[1:] = 0
    x[0] += 1
    x += 2
    x *= SCALES[0]
    x.mul_(3).add_(1)
    return x


def configured(x: Any) -> Any:
    return x * CONFIG["eps"] * Kind.LARGE.value * int(RATES[1]) * math.sqrt(2) * Config(3.0).scale


def generated(x: Any) -> Any:
    def rows() -> Iterator[Any]:
        yield from (x * k for k in itertools.chain(range(2), (5,)))

    total = 0
    for row in rows():
        total += row
    return functools.reduce(lambda a, b: a + b, [total, x])


def nested(x: Any) -> Any:
    total = x

    def add(value: Any) -> None:
        nonlocal total
        total = total + value

    add(1)
    add(x)
    return total


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with al.no_grad():
        yield


def in_blocks(x: Any) -> Any:
    with quiet():
        y = x + 1
    with Holder(x) as held:
        return held * 2 + y + Holder(x).doubled + Pair(x, y).total()


def sorted_pairs(x: Any) -> Any:
    pairs = sorted([Pair(x, 1), Pair(x, 0)], key=lambda p: p.second)
    rest = dict(enumerate(pairs))
    rest.pop(0)
    return rest[1].first + x.sort(0)[0] + getattr(x, "T", x).sum()


def custom(x: Any) -> Any:
    return Double.apply(x).relu()


def doubled(function: Function) -> Function:
    @functools.wraps(function)
    def inner(*args: Any) -> Any:
        return function(*args) * 2

    return inner


@doubled
def wrapped(x: Any) -> Any:
    assert x.ndim > 0, f"{x.ndim} dimensions"
    return functools.partial(al.add, x)(1)


PURE = [
    lists,
    writes_tensors,
    writes_parts,
    configured,
    generated,
    nested,
    in_blocks,
    sorted_pairs,
    custom,
]
PURE += [wrapped, Block(), al.nn.Sequential(al.nn.Linear(4, 4), al.nn.ReLU(), al.nn.Dropout(0.5))]


@pytest.mark.rules("DYN-24")
@pytest.mark.parametrize("of", PURE, ids=lambda f: getattr(f, "__name__", type(f).__name__))
def test_functions_that_compute_are_examined(of: Function) -> None:
    def f(x: al.Tensor) -> al.Tensor:
        if x.shape[0] > 3:
            return of(x) * 2
        return of(x)

    compiled = al.compile(f, dynamic=True, backend="reference")
    compiled(al.ones(5, 4, requires_grad=of is custom))
    (region,) = compiled.regions(witnesses=True)
    assert not region.unknown
    needs = {need.guard.text: need for need in region.needs}
    assert needs["s0 > 3"].witness is not None


@pytest.mark.rules("DYN-24")
def test_lists_that_may_be_another_ones_are_not_the_functions_own() -> None:
    """Of each pair the first one only changes what it has made."""

    def chosen(flag: object) -> None:
        out = STATE.items if flag else []
        out.append(1)

    def either() -> None:
        out = STATE.items or []
        out.append(1)

    def own(flag: object) -> list[object]:
        out: list[object] = []
        if flag:
            out.extend(STATE.items)
        out.append(1)
        return out

    def rebound() -> list[object]:
        out: list[object] = []

        def change() -> None:
            nonlocal out
            out = STATE.items

        change()
        out.append(1)
        return out

    def looped() -> None:
        for out in [STATE.items]:
            out.append(1)

    found = {f.__name__: first_write([f]) is None for f in (chosen, either, own, rebound, looped)}
    assert found == {
        "chosen": False,
        "either": False,
        "own": True,
        "rebound": False,
        "looped": False,
    }
