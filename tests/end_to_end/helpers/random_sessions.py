"""Random scripts: a function, and a user who calls it again and again in changing worlds.

Plain `random.Random(seed)`: unlike Hypothesis's draws, which stay near simple ones, every seed is
another mixture. Lines are tried eagerly while they are written, so that most of them run.
"""

from __future__ import annotations

from random import Random
from typing import Any

import attrs

import aotlite as al
from tests.end_to_end.helpers.random_bodies import (
    TRAINING,
    BodyWriter,
    geometry_text,
    result_text,
    view_text,
    write_text,
)
from tests.end_to_end.helpers.random_outside import OUTSIDE, REBINDING
from tests.end_to_end.helpers.scripts import (
    Line,
    Script,
    eager_form,
    new_scope,
    run_text,
    tensors_in,
)

SHAPES = (
    (), (1,), (2,), (4,), (4,), (6,), (0,), (2, 2), (2, 2), (2, 3), (3, 2), (1, 4), (2, 1),
    (2, 2, 2), (2, 0), (3, 3),
)  # fmt: skip
DTYPES = ("float64",) * 14 + (
    "float32", "float32", "int64", "int64", "int32", "bool_", "complex128", "float16", "bfloat16",
    "uint8",
)  # fmt: skip


@attrs.frozen
class Slot:
    """An argument: the lines that make it (`{n}` stands for its name), and its kind."""

    recipe: tuple[str, ...]
    kind: str
    """tensor, plain, array or module."""


@attrs.define
class Author:
    """Writes one script."""

    rng: Random
    scope: dict[str, Any]
    outside: list[str] = attrs.field(factory=list)
    names_outside: list[str] = attrs.field(factory=list)
    session: list[Line] = attrs.field(factory=list)
    slots: list[Slot] = attrs.field(factory=list)
    shape: tuple[int, ...] = ()
    """How the arguments are passed: see `_calls`."""
    form: str = "flat"
    is_training: bool = False
    """Leaves of one shape and pure ops, mostly: what one tape node and its leaves come of."""
    made: int = 0
    flat: list[str] = attrs.field(factory=list)
    """The arguments of the last call."""

    # --- the session's lines
    def line(self, kind: str, text: str) -> bool:
        """Adds a line if it runs, sometimes if it does not."""
        try:
            run_text(text, self.scope)
        except Exception:
            if self.rng.random() > 0.03 or kind == "make":
                return False
        self.session.append(Line(kind, text))
        return True

    def name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    # --- the outside
    def write_outside(self) -> tuple[list[str], list[str]]:
        """Defines what the function may read; its tensors and plain values."""
        count = self.rng.choice((0, 0, 0, 1, 1, 2, 3))
        tensors: list[str] = []
        plain: list[str] = []
        for name in self.rng.sample(sorted(OUTSIDE), count):
            text, found, flags = OUTSIDE[name]
            run_text(text, self.scope)
            self.outside.append(text)
            self.names_outside.append(name)
            tensors += found
            plain += flags
        return tensors, plain

    # --- arguments
    def fresh_text(self, seed: int, grad: bool) -> str:
        same = self.is_training or self.chance(0.6)
        shape = self.shape if same else self.rng.choice(SHAPES)
        dtype = "float64" if self.is_training else self.rng.choice(DTYPES)
        args = [str(seed), *map(str, shape)]
        if dtype != "float64":
            args.append(f"dtype=al.{dtype}")
        if grad and ("float" in dtype or "complex" in dtype):
            args.append("grad=True")
        return f"T({', '.join(args)})"

    def slot(self, index: int) -> Slot:
        rng = self.rng
        others = [i for i, each in enumerate(self.slots) if each.kind == "tensor"]
        made = self.fresh_text(index, self.chance(0.65))
        kinds = ("leaf", "inner", "laid", "of", "same", "plain", "array", "param", "module")
        weights = [9, 5, 3, 3, 1, 1.5, 0.7, 1, 0.6]
        if self.form == "many":
            weights = [12, 3, 2, 1, 0.3, 0, 0, 0, 0]
        if self.is_training:
            weights = [12, 0, 0.3, 0, 0.1, 0.5, 0, 2, 0.5]
        kind = rng.choices(kinds, weights)[0]
        match kind if others or kind not in ("of", "same") else "leaf":
            case "inner":
                after = rng.choice((" * 1", ".sin()", ".clone()", ".t()", ".view(-1)", " + 0"))
                return Slot((f"l{{n}} = {made}", f"{{n}} = l{{n}}{after}"), "tensor")
            case "laid":
                return Slot((f"b{{n}} = {made}", self.laid_text()), "tensor")
            case "of":
                other = f"{{{rng.choice(others)}}}"
                way = rng.choice(("[0]", ".view(-1)", ".detach()", ".t()", "[1:]", "[...]", ".T"))
                return Slot((self.guarded(f"{{n}} = {other}{way}"),), "tensor")
            case "same":
                return Slot((f"{{n}} = {{{rng.choice(others)}}}",), "tensor")
            case "plain":
                value = rng.choice(("2", "0.5", "True", "None", "'sum'", "-1", "3.0", "False"))
                return Slot((f"{{n}} = {value}",), "plain")
            case "array":
                shape = ", ".join(map(str, (index, *self.shape)))
                return Slot((f"{{n}} = N({shape})",), "array")
            case "param":
                kind = rng.choice(("Parameter", "Parameter", "Buffer"))
                return Slot((f"{{n}} = nn.{kind}({self.fresh_text(index, False)})",), "tensor")
            case "module" if "net" in self.names_outside:
                return Slot(("{n} = net",), "module")
            case _:
                return Slot((f"{{n}} = {made}",), "tensor")

    def laid_text(self) -> str:
        way = self.rng.choice(
            (".t()", "[::2]", "[1:]", ".expand(2, -1)", ".diagonal()", "[..., 0]", ".view(-1)",
             "[None]", ".detach()", ".unbind(0)[0]", ".flip(0)", ".mT", ".expand(3, -1)")
        )  # fmt: skip
        return self.guarded(f"{{n}} = b{{n}}{way}")

    def guarded(self, text: str) -> str:
        return f"with al.no_grad():\n    {text}" if self.chance(0.2) else text

    def make(self, index: int, slot: Slot, names: list[str]) -> str | None:
        """Makes an argument anew, after the ones before it; its name."""
        name = self.name("x")
        for recipe in slot.recipe:
            if not self.line("make", recipe.format(*names, n=name)):
                return None
        return name

    def make_slots(self, count: int) -> None:
        """The arguments of the first call."""
        names: list[str] = []
        for _ in range(count):
            for _ in range(5):
                slot = self.slot(len(self.slots))
                name = self.make(len(names), slot, names)
                if name is not None:
                    self.slots.append(slot)
                    names.append(name)
                    break
        self.flat = names

    def remake(self) -> list[str]:
        """New arguments of the same kinds."""
        names: list[str] = []
        for i, slot in enumerate(self.slots):
            names.append(self.make(i, slot, names) or self.flat[i])
        return names

    def vary(self) -> list[str]:
        """The last call's arguments, but for something."""
        rng, names = self.rng, list(self.flat)
        if not names:
            return names
        i, j = rng.randrange(len(names)), rng.randrange(len(names))
        mine, its = names[i], names[j]
        value = self.scope[mine]
        is_plain = value is None or isinstance(value, (bool, int, float, str))
        match rng.randrange(9):
            case 0:
                names[i], names[j] = its, mine
                return names
            case 1:
                names[i] = its
                return names
            case 2:
                text = f"T({30 + i}, *{mine}.shape, grad=True)"
            case 3:
                text = f"{mine}.detach()"
            case 4:
                text = f"{its}[...]"
            case 5 if is_plain:
                text = rng.choice(("3", "0.5", "True", "1", "None", "1.0"))
            case 5:
                text = f"{mine}.detach().numpy()"
            case 6:
                text = f"{mine}.clone()"
            case 7:
                text = f"al.stack([{mine}, {mine}], -1)[..., 1]"
            case _:
                text = self.fresh_text(i, self.chance(0.5))
        names[i] = self.replacement(text) or mine
        return names

    def replacement(self, text: str) -> str | None:
        name = self.name("x")
        return name if self.line("make", f"{name} = {text}") else None

    # --- calls
    def parameters(self) -> tuple[str, list[str]]:
        """The function's head, and the expressions of its arguments inside."""
        letters = [chr(ord("a") + i) for i in range(len(self.slots))]
        first, rest = letters[:1], letters[1:]
        match self.form:
            case "many":
                return "def f(*xs):", [f"xs[{i}]" for i in range(len(letters))]
            case "list":
                return f"def f({', '.join([*first, 'xs'])}):", [
                    *first, *[f"xs[{i}]" for i in range(len(rest))],
                ]  # fmt: skip
            case "dict":
                return f"def f({', '.join([*first, 'd'])}):", [
                    *first, *[f"d['{name}']" for name in rest],
                ]  # fmt: skip
            case "keywords":
                return f"def f({', '.join([*first, '*', *rest])}):" if rest else (
                    f"def f({', '.join(first)}):"
                ), letters  # fmt: skip
            case _:
                return f"def f({', '.join(letters)}):", letters

    def call_text(self, names: list[str]) -> str:
        first, rest = names[:1], names[1:]
        letters = [chr(ord("a") + i) for i in range(len(names))][1:]
        match self.form:
            case "list":
                return f"f({', '.join([*first, '[' + ', '.join(rest) + ']'])})"
            case "dict":
                pairs = [f"'{key}': {name}" for key, name in zip(letters, rest, strict=True)]
                return f"f({', '.join([*first, '{' + ', '.join(pairs) + '}'])})"
            case "keywords":
                pairs = [f"{key}={name}" for key, name in zip(letters, rest, strict=True)]
                return f"f({', '.join([*first, *pairs])})"
            case _:
                return f"f({', '.join(names)})"

    def call(self, *, grad: bool) -> str | None:
        name = self.name("r")
        text = f"{name} = {self.call_text(self.flat)}"
        text = text if grad else "with al.no_grad():\n    " + text.replace("\n", "\n    ")
        again = 3 if self.chance(0.15) else 0  # the third run of a graph is of another kind
        each = f"for y in results({name}):\n    y.sum().backward(retain_graph=True)"
        for _ in range(again):
            if self.line("call", text) and self.is_training:
                self.line("backward", each)
        return name if self.line("call", text) else None

    # --- around the calls
    def tensors(self) -> list[str]:
        """Names of the session's tensors, and of those the function reads."""
        found = [n for n, v in self.scope.items() if isinstance(v, al.Tensor)]
        return found or ["al.zeros(1)"]

    def gradients(self, result: str) -> None:
        """Goes backward from a result, in one of many ways, and does something about `.grad`."""
        rng = self.rng
        count = self.count_of(result)
        if not count:
            return
        hows = ("plain", "plain", "plain", "turned", "gaps", "expanded", "tracked", "itself")
        given = f"G(y, 1, '{rng.choice(hows)}')"
        retain = ", retain_graph=True" if self.chance(0.3) else ""
        whole = f"results({result})"
        some = rng.randrange(count)
        leaves = self.leaves()
        among = ", ".join(rng.sample(leaves, min(len(leaves), rng.randint(1, 4)))) if leaves else ""
        grads = self.name("g")
        options = [
            f"al.autograd.backward({whole}, [{given} for y in {whole}]{retain})",
            f"al.autograd.backward({whole}, [{given} for y in {whole}]{retain})",
            f"y = {whole}[{some}]; y.backward({given}{retain})",
            f"y = {whole}[{some}]; y.backward({given}{retain}); del y",
            f"{whole}[{some}].sum().backward({retain[2:]})",
            f"sum(y.sum() for y in {whole}).backward({retain[2:]})",
            f"{whole}[{some}].backward({retain[2:]})",
            f"(lambda y: y.backward({given}{retain}))({whole}[{some}])",
        ]
        if leaves:
            # Eager's gradients may lie on the memory of those that were given.
            given = given.replace("itself", "plain")
            args = f"[{given} for y in {whole}]{retain}, allow_unused=True"
            one = f"al.autograd.grad(y, [{among}], {given}{retain}, allow_unused=True)"
            options += [f"{grads} = al.autograd.grad({whole}, [{among}], {args})"] * 2
            options += [f"y = {whole}[{some}]; {grads} = {one}"] * 2
            options += [f"y = {whole}[{some}]; {grads} = {one}; del y"] * (3 * self.is_training)
        if count > 1:
            options.append(f"for y in {whole}:\n    y.backward({given}, retain_graph=True)")
        text = rng.choice(options)
        if self.chance(0.1):
            text = "with al.no_grad():\n    " + text.replace("\n", "\n    ")
        self.line("backward", text)
        if self.chance(0.1):
            self.line("backward", text)

    def count_of(self, result: str) -> int:
        return int(eval(f"len(results({result}))", self.scope))

    def leaves(self) -> list[str]:
        scope = self.scope
        return [
            n
            for n in self.tensors()
            if n in scope and scope[n].requires_grad and scope[n].base is None and scope[n].is_leaf
        ]

    def after_backward(self) -> None:
        """Writes lines that use gradients."""
        leaves = self.leaves()
        if not leaves:
            return
        x, y = self.rng.choice(leaves), self.rng.choice(leaves)
        options = [f"{x}.grad = None"] * 3 + [
            f"with al.no_grad():\n    {x}.sub_({x}.grad)",
            f"with al.no_grad():\n    {x} -= {x}.grad * 0.5",
            f"{x}.grad = {y}.grad",
            f"{x}.grad = {y}.detach()",
            f"{x}.grad = T(5, *{x}.shape)",
            f"{x}.grad.zero_()",
            f"{x}.grad = {x}.grad.clone().requires_grad_()",
            f"{x}.grad = al.stack([{x}, {x}], -1).detach()[..., 0]",
            f"opt = optim.SGD([{x}, {y}], lr=0.5)" if x != y else f"opt = optim.SGD([{x}], lr=0.5)",
            f"opt = optim.AdamW([{x}], lr=0.5)",
            "opt.step()",
            "opt.zero_grad()",
            "wrapped_step = wrap(lambda o: o.step()); wrapped_step(opt)",
        ]
        self.line("other", self.rng.choice(options))

    def meddle(self) -> None:
        """The user does something to a tensor, or to what the function reads."""
        rng = self.rng
        x, y = rng.choice(self.tensors()), rng.choice(self.tensors())
        value = self.scope.get(x)
        if value is None:
            return
        mode = "with al.no_grad():\n    " if self.chance(0.4) else ""
        made = self.name("m")
        options = [mode + write_text(rng, value, x, lambda: rng.choice(("2", "-1", "0.5", y)))] * 5
        options += [f"{mode}{made} = {x}{view_text(rng, value)}"] * 2
        options += [f"{mode}{x}{geometry_text(rng, value)}"]
        # Past the ends of a result lies what eager's base holds, which META-10 lets go of.
        options = [each for each in options if "as_strided" not in each]
        if self.is_alone(value):  # of others see OPEN in test_random_programs
            options += [f"{x}.requires_grad_()", f"{x}.requires_grad_(False)"]
        options += [f"{x}.grad_fn", f"del {x}", "al.manual_seed(5)"]
        options += [f"for t in [{x}, {y}]:\n    t.is_leaf", f"{made} = {x}.detach().numpy()"]
        options += [text for name in self.names_outside for text in REBINDING[name]]
        text = rng.choice(options)
        if text.startswith("del") and x in (*self.flat, *self.names_outside):
            return
        self.line("other", text)

    def is_alone(self, tensor: Any) -> bool:
        """Whether no other tensor of the session lies on its storage."""
        known = [other for value in self.scope.values() for other in tensors_in(value)]
        return not any(o.storage is tensor.storage for o in known if o is not tensor)

    def round(self) -> bool:
        """One call more, and what surrounds it."""
        for _ in range(self.rng.choice((0, 0, 1, 1, 2))):
            self.meddle()
        chosen = self.rng.random()
        if chosen < 0.3:
            self.flat = self.remake()
        elif chosen < 0.55:
            self.flat = self.vary()
        if any(name not in self.scope for name in self.flat):
            return False
        result = self.call(grad=self.chance(0.88))
        return result is not None and self.after(result)

    def after(self, result: str) -> bool:
        """Writes the lines after a call."""
        if result not in self.scope:
            return False  # the call raises, and is the last
        for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2))):
            self.meddle()
        if self.chance(0.75) and result in self.scope:
            self.gradients(result)
            for _ in range(self.rng.choice((0, 1, 1))):
                self.after_backward()
        return True


def random_script(seed: int) -> Script:
    """The script of a seed."""
    rng = Random(seed)
    scope = new_scope(eager_form)
    author = Author(rng, scope, shape=rng.choice(SHAPES))
    tensors, flags = author.write_outside()
    author.form = rng.choice(("flat",) * 7 + ("list", "dict", "keywords", "many"))
    author.is_training = author.chance(0.35)
    low, high = (14, 20) if author.form == "many" else (1, 6)
    author.make_slots(rng.randint(low, high))
    head, inside = author.parameters()
    grad = author.chance(0.88)
    writer = _body(author, head, inside, tensors, flags, ambient=grad)
    result = result_text(writer)
    names = tuple(author.names_outside)
    closes_over = names if author.chance(0.4) else None
    script = Script(tuple(author.outside), head, tuple(writer.lines), result, (), closes_over)
    run_text(script.definition(), scope)
    author.scope = scope = _started_again(script, author)
    first = author.call(grad=grad)
    if first is not None and author.after(first):
        for _ in range(rng.randint(3, 6)):
            if not author.round():
                break
    return attrs.evolve(script, session=tuple(author.session))


def _body(
    author: Author,
    head: str,
    inside: list[str],
    tensors: list[str],
    flags: list[str],
    *,
    ambient: bool,
) -> BodyWriter:
    """Writes the body, on the arguments of the first call."""
    frame = dict(author.scope)
    probe = head.replace("def f", "def probe") + "\n    return dict(locals())\n"
    run_text(probe, frame)
    call = author.call_text(author.flat)
    frame.update(eval("probe" + call[1:], frame))
    for name in (*author.flat, "probe"):
        frame.pop(name, None)
    kinds = [slot.kind for slot in author.slots]
    known = [e for e, kind in zip(inside, kinds, strict=True) if kind == "tensor"]
    plain = [e for e, kind in zip(inside, kinds, strict=True) if kind == "plain"]
    writer = BodyWriter(author.rng, frame, [*known, *tensors], [*plain, *flags], ambient=ambient)
    if author.is_training:
        writer.weights = TRAINING
    if author.form == "many" and author.chance(0.7):
        writer.keep("v0 = sum(t.sum() for t in xs)")
    for _ in range(author.rng.choice((2, 3, 4, 5, 6, 7, 9, 12))):
        writer.step()
    if author.is_training and author.chance(0.6):
        writer.keep(f"loss = ({' + '.join(f'{each}.sum()' for each in writer.floating())})")
        writer.made = writer.made[-1:]
    return writer


def _started_again(script: Script, author: Author) -> dict[str, Any]:
    """The world as it was before the body was tried, with the function defined."""
    scope = new_scope(eager_form)
    for text in (*script.outside, script.definition(), *(line.text for line in author.session)):
        run_text(text, scope)
    return scope
