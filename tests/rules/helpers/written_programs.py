"""Programs that write their arguments by what they compute from them, as plain data, and all that
can be told of their results and of derivatives to the third order.

Operands are three by three: leaves, computed from leaves, parts of something larger, or two views
of one tensor; of two dtypes. What a write goes to may be a part, a row, a diagonal, a transposed
view, or a view without history. Some programs repeat and join values and write parts of what they
get, so that results and gradients are of several sizes, and are derived in two ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import attrs

import aotlite as al
from tests.rules.helpers.towers import ORDERS, close, close_but_zeros

KINDS = ("leaf", "computed", "computed", "part", "turned", "plain", "view of a leaf")
"""The kinds of operands."""


@attrs.frozen
class Program:
    kinds: tuple[str, ...]
    """The kinds of the operands; `twin` is a view of the memory of the first one."""
    narrow: tuple[bool, ...]
    """The operands that are float32."""
    steps: tuple[tuple[str, int, int], ...]
    """Names, and the places of two values: operands, and what steps before have given."""
    results: tuple[tuple[str, int], ...]
    """The results: a view and a value each."""
    picks: tuple[int, ...]
    """For each order bits of what its gradients are those of."""
    calls: int = 1
    others: tuple[int, ...] = ()
    """The picks of a second tower on the results of a call."""


# -------------------------------------------------------------------------------------- steps
def hooked(a: Any) -> Any:
    y = a * 1.0
    y.register_hook(lambda grad: grad * 2.0)
    return y


def saved_and_hooked(a: Any) -> Any:
    y = a.tanh()
    y.register_hook(lambda grad: grad * 2.0)
    return y * a


def unseen(a: Any, b: Any) -> None:
    with al.no_grad():
        a.mul_(b.detach() * 0.5 + 1.0)


def retaining(a: Any) -> Any:
    y = a * 1.5
    y.retain_grad()
    return y


VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "sin": lambda a, b: a.sin(),
    "exp": lambda a, b: (a * 0.5).exp(),
    "tanh": lambda a, b: a.tanh(),
    "bare exp": lambda a, b: a.exp(),
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "where": lambda a, b: al.where(a.detach() > 0.1, a, b),
    "rows": lambda a, b: a[[2, 0, 1]],
    "detach": lambda a, b: a.detach() * b,
    "turn": lambda a, b: a.t(),
    "same": lambda a, b: a.view_as(a),
    "row": lambda a, b: a[0] * b,
    "product": lambda a, b: a @ b,
    "softmax": lambda a, b: a.softmax(0),
    "relu": lambda a, b: a.relu(),
    "clone": lambda a, b: a.clone(),
    "wide": lambda a, b: a.double(),
    "narrow": lambda a, b: a.float(),
}
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "write": lambda a, b: a.mul_(b),
    "add in place": lambda a, b: a.add_(b),
    "sin in place": lambda a, b: a.sin_(),
    "exp in place": lambda a, b: a.mul_(0.5).exp_(),
    "write a part": lambda a, b: a[1:].mul_(b[:2]),
    "add to a part": lambda a, b: a[:2].add_(b[1:]),
    "write a row": lambda a, b: a[1].mul_(b[0]),
    "write a column": lambda a, b: a[:, 2].mul_(b[1]),
    "write the diagonal": lambda a, b: a.diagonal().mul_(b[2]),
    "sin of a part": lambda a, b: a[1:].sin_(),
    "copy a part": lambda a, b: a[1:].copy_(b[1:]),
    "copy a row": lambda a, b: a[0].copy_(b[1]),
    "copy all": lambda a, b: a.copy_(b),
    "clear a row": lambda a, b: a[0].zero_(),
    "clear": lambda a, b: a.zero_(),
    "fill": lambda a, b: a[2].fill_(0.3),
    "write turned": lambda a, b: a.t().mul_(b),
    "unseen": lambda a, b: unseen(a, b),
    "unseen part": lambda a, b: unseen(a[1:], b[:2]),
    "put": lambda a, b: a.__setitem__((0, slice(1)), b[1, :1]),
    "put rows": lambda a, b: a.__setitem__([0, 2], b[:2]),
}
HOOKS: dict[str, Callable[[Any, Any], Any]] = {
    "hook": lambda a, b: hooked(a),
    "hook of a saved": lambda a, b: saved_and_hooked(a),
    "retain": lambda a, b: retaining(a),
}
LARGER: dict[str, Callable[[Any, Any], Any]] = {
    "repeat": lambda a, b: a.repeat(2, 1),
    "spread": lambda a, b: a[-3:].expand(2, 3, 3).reshape(6, 3),
    "spread rows": lambda a, b: a[0].expand(5, 3).clone(),
    "join one": lambda a, b: al.cat([a, a]),
    "join": lambda a, b: al.cat([a, b]),
    "join rows": lambda a, b: al.stack([a[0], b[1], a[2], a[0]]),
    "halves": lambda a, b: a[:3] * b[-3:],
    "last rows": lambda a, b: a[-3:] * 1,
}
"""Values of more rows, and of three of these."""
ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "copy first rows": lambda a, b: a[:3].copy_(b[:3]),
    "copy last rows": lambda a, b: a[-3:].copy_(b[:3]),
    "copy last from last": lambda a, b: a[-2:].copy_(b[-2:]),
    "write first rows": lambda a, b: a[:2].mul_(b[-2:]),
    "add to last rows": lambda a, b: a[-3:].add_(b[:3]),
    "sin of last rows": lambda a, b: a[-2:].sin_(),
    "copy a row": WRITES["copy a row"],
    "clear a row": WRITES["clear a row"],
}
"""Writes of parts of them."""
POINTWISE = {name: VALUES[name] for name in ("sin", "tanh", "bare exp", "clone")}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "all": lambda a: a,
    "row": lambda a: a[1],
    "part": lambda a: a[1:],
    "diagonal": lambda a: a.diagonal(),
    "turned": lambda a: a.t(),
    "same": lambda a: a.view_as(a),
}


def drawn_larger(random: Random) -> Program:
    """A program of values of several sizes."""
    count = random.choice((1, 2, 2))
    steps: list[tuple[str, int, int]] = []
    known = count
    for _ in range(random.randint(2, 6)):
        table = random.choice((LARGER, LARGER, ROWS, ROWS, ROWS, POINTWISE))
        target = random.choice((known - 1, random.randrange(known)))
        other = random.choice((target, random.randrange(known)))
        steps.append((random.choice(sorted(table)), target, other))
        known += table is not ROWS
    results = [("all", random.choice((known - 1, random.randrange(known)))) for _ in range(2)]
    first, second = (
        [random.choice((-1, 1 << random.randrange(4))) for _ in range(ORDERS)] for _ in range(2)
    )
    return Program(
        tuple(
            [random.choice(("leaf", "computed", "turned", "tall", "tall")) for _ in range(count)]
        ),
        (False,) * count,
        tuple(steps),
        tuple(results),
        tuple(first),
        others=tuple(second),
    )


def drawn(random: Random, *, hooks: bool = False, narrow: bool = False) -> Program:
    count = random.choice((2, 2, 3))
    kinds = [random.choice(KINDS) for _ in range(count)]
    if random.random() < 0.15:
        kinds[-1] = random.choice(("twin", "twin turned"))
    known = count
    steps: list[tuple[str, int, int]] = []
    retained: list[tuple[str, int]] = []
    for _ in range(random.randint(1, 6)):
        table = WRITES if random.random() < 0.5 else VALUES
        if hooks and random.random() < 0.25:
            table = HOOKS
        name = random.choice(sorted(table))
        target = random.randrange(known)
        if table is WRITES and random.random() < 0.5:
            target = random.randrange(count)
        steps.append((name, target, random.randrange(known)))
        if name == "retain":  # what is no result may not
            retained.append(("all", known))
        known += table is not WRITES
    results = [
        (random.choice(["all", "all", *VIEWS]), random.randrange(known))
        for _ in range(random.randint(1, 3))
    ]
    results += retained
    return Program(
        tuple(kinds),
        tuple([narrow and random.random() < 0.4 for _ in kinds]),
        tuple(steps),
        tuple(results),
        tuple([random.choice((-1, -1, random.getrandbits(8))) for _ in range(ORDERS)]),
        random.choice((1, 1, 2)),
    )


def function_of(program: Program) -> Callable[..., Any]:
    writes, given = WRITES | ROWS, VALUES | HOOKS | LARGER

    def function(*operands: Any) -> Any:
        values = list(operands)
        for name, a, b in program.steps:
            if name in writes:
                writes[name](values[a], values[b])
            else:
                values.append(given[name](values[a], values[b]))
        return tuple([VIEWS[view](values[place]) for view, place in program.results])

    return function


# ------------------------------------------------------------------------------------ operands
def operands(program: Program, call: int) -> tuple[list[Any], list[Any]]:
    """The leaves, and the operands made of them."""
    random = Random(call)
    leaves: list[Any] = []
    found: list[Any] = []
    for kind, narrow in zip(program.kinds, program.narrow, strict=True):
        height, width = {"part": (4, 4), "tall": (6, 3)}.get(kind, (3, 3))
        rows = [[random.uniform(-0.8, 0.8) for _ in range(width)] for _ in range(height)]
        leaf = al.tensor(rows, dtype=al.float32 if narrow else al.float64)
        if kind not in ("plain", "twin", "twin turned"):
            leaves.append(leaf.requires_grad_())
        found.append(OPERANDS[kind](leaf, found))
    return leaves, found


OPERANDS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "leaf": lambda leaf, found: leaf,
    "computed": lambda leaf, found: leaf * 1,
    "part": lambda leaf, found: (leaf * 1)[1:, 1:],
    "turned": lambda leaf, found: (leaf * 1).t(),
    "tall": lambda leaf, found: leaf * 1,
    "plain": lambda leaf, found: leaf,
    "view of a leaf": lambda leaf, found: leaf.view_as(leaf),
    "twin": lambda leaf, found: found[0].view_as(found[0]),
    "twin turned": lambda leaf, found: found[0].t(),
}


# ---------------------------------------------------------------------------------- what is seen
def story(program: Program, called: Callable[..., Any]) -> list[Any]:
    """The observation of each call, up to an error."""
    seen: list[Any] = []
    for call in range(program.calls):
        leaves, given = operands(program, call)
        try:
            results = list(called(*given))
        except (al.UnsupportedError, al.AliasError):
            raise
        except al.AotliteError as error:
            seen.append(type(error).__name__)
            return seen
        told = [*given, *results]
        seen.append([_shown(each) for each in told])
        seen.append([[a.storage is b.storage for a in told] for b in told])
        seen.append([[a is b for a in told] for b in told])
        seen.append(_derivatives(program.picks, told, leaves))
        if program.others:
            seen.append(_derivatives(program.others, told, leaves))
        seen.append([_shown(each) for each in told])
    return seen


def _shown(tensor: Any) -> Any:
    return tensor.tolist(), tensor._version, tensor.requires_grad, tensor.is_leaf, tensor.stride()


def _derivatives(picks: Sequence[int], told: list[Any], leaves: list[Any]) -> list[Any]:
    """Gradients of what is told, of these, and so on, up to an error."""
    found: list[Any] = []
    current = [each for each in told if each.requires_grad]
    random = Random(7)
    for order in range(ORDERS):
        bits = picks[order]
        picked = [each for k, each in enumerate(current) if bits >> k & 1] or current[:1]
        if not picked or not leaves:
            break
        try:
            total = sum(
                (_weighted(each, random) for each in picked[1:]), _weighted(picked[0], random)
            )
            grads: Any = al.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
        except al.GraphError:
            raise
        except al.AotliteError as error:
            found.append((type(error).__name__, _reason(error)))
            break
        found.append([None if g is None else (g.tolist(), g.requires_grad) for g in grads])
        there = [each for each in grads if each is not None and each.requires_grad]
        current = [*there, *current] if order % 2 else there
    return found


OUTSIDE = ("part", "turned", "view of a leaf")
"""Kinds of views of what the function does not see."""


def agrees(program: Program, expected: Any, found: Any) -> bool:
    """Whether the stories of a program are one, up to rounding.

    Where an operand is a view of what is not passed, zeros may have lost their history: the
    compiled function does not see that they are part of something larger that has one.
    """
    narrow = any(program.narrow) or any(step[0] == "narrow" for step in program.steps)
    rtol = 2e-3 if narrow else 1e-6
    loose = not set(OUTSIDE).isdisjoint(program.kinds)
    return len(expected) == len(found) and all(
        close(one, other, rtol) or (loose and close_but_zeros(one, other, rtol))
        for one, other in zip(expected, found, strict=True)
    )


def _reason(error: Exception) -> str:
    """DBL-1 where a derivative is refused."""
    return "DBL-1" if "(DBL-1)" in str(getattr(error, "__notes__", "")) else ""


def _weighted(tensor: Any, random: Random) -> Any:
    weights = [random.uniform(0.3, 1.0) for _ in range(tensor.numel())]
    weight = al.tensor(weights, dtype=al.float64).view(tensor.shape)
    return (tensor.double() * weight).sin().sum()
