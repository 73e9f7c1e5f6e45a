"""Programs with places that can be changed one at a time: for the laws of the artifact cache.

A program is a module's source text, made of parts. Each part has slots; a slot has several values,
and the program says whether a capture reads it. Changing a slot that is read may change the result;
changing one that is not read must not make the cache miss.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import attrs

DATA, READ, UNREAD = "data", "read", "unread"
"""What a slot is: the data of a tensor, which no capture reads; read by it; or neither."""


@attrs.frozen
class Slot:
    """A place of a program, with its values as source text."""

    name: str
    values: tuple[str, ...]
    kind: str = READ


@attrs.frozen
class Part:
    """A part of a program: lines with `{slot}` for the value of a slot."""

    slots: tuple[Slot, ...]
    module: str = ""
    body: str = ""
    """The lines of the class of the Module."""
    init: str = ""
    step: str = ""
    """The lines of the function."""


def _part(*slots: Slot, module: str = "", body: str = "", init: str = "", step: str = "") -> Part:
    return Part(slots, module, body, init, step)


NUMBERS = ("2.0", "3.0", "2", "0.5", "-0.0", "0.0", "True")


def _global(n: int) -> Part:
    return _part(
        Slot(f"g{n}", NUMBERS),
        Slot(f"v{n}", NUMBERS, UNREAD),
        module=f"G{n} = {{g{n}}}\nV{n} = {{v{n}}}",
        step=f"x = x * G{n} + 1.0",
    )


def _list(n: int) -> Part:
    return _part(
        Slot(f"l{n}", ("[1.0, 2.0]", "[1.0, 3.0]", "(1.0, 2.0)", "[1.0, 2.0, 4.0]", "[True, 2.0]")),
        module=f"L{n} = {{l{n}}}",
        step=f"x = x + L{n}[1] - len(L{n})",
    )


def _mode(n: int) -> Part:
    return _part(
        Slot(f"m{n}", ('"sin"', '"cos"', '"exp"')),
        Slot(f"o{n}", ('"a"', '"b"', "1")),
        module=f'C{n} = {{{{"mode": {{m{n}}}, "other": {{o{n}}}}}}}',
        step=f'x = getattr(x, C{n}["mode"])()',
    )


BODIES = ("x.sin()", "x.cos()", "x * 2.0", "x * 3.0", "x + x", "(x * 2.0).tanh()")


def _helper(n: int) -> Part:
    return _part(
        Slot(f"h{n}", BODIES),
        Slot(f"u{n}", BODIES, UNREAD),
        module=f"def help{n}(x):\n    return {{h{n}}}\ndef unused{n}(x):\n    return {{u{n}}}",
        step=f"x = help{n}(x)",
    )


ACTS = ("al.sin", "al.cos", "al.nn.functional.silu", "al.Tensor.tanh", "al.Tensor.neg", "helping")


def _library(n: int) -> Part:
    """Functions of aotlite as values: what runs is its code, which no watch sees."""
    return _part(
        Slot(f"lf{n}", ACTS),
        Slot(f"lg{n}", ACTS),
        Slot(f"lu{n}", ACTS, UNREAD),
        module=f"def helping(x):\n    return x + 0.5\nLF{n} = {{lf{n}}}\nLU{n} = {{lu{n}}}",
        init=f"self.lg{n} = {{lg{n}}}",
        step=f"x = LF{n}(x) + model.lg{n}(x)",
    )


def _branch(n: int) -> Part:
    """A helper that is named, and does not run; it names a global, too."""
    return _part(
        Slot(f"b{n}", BODIES, UNREAD),
        Slot(f"t{n}", ("1.0", "2.0", "5.0")),
        Slot(f"w{n}", NUMBERS, UNREAD),
        module=(f"T{n} = {{t{n}}}\nW{n} = {{w{n}}}\ndef far{n}(x):\n    return ({{b{n}}}) * W{n}"),
        step=f"if T{n} > 3.0:\n    x = x * 1.5\nif T{n} > 1000.0:\n    x = far{n}(x)",
    )


def _default(n: int) -> Part:
    return _part(
        Slot(f"d{n}", NUMBERS),
        Slot(f"k{n}", NUMBERS),
        module=f"def with{n}(x, a={{d{n}}}, *, b={{k{n}}}):\n    return x * a + b",
        step=f"x = with{n}(x)",
    )


def _closure(n: int) -> Part:
    return _part(
        Slot(f"c{n}", NUMBERS),
        Slot(f"e{n}", BODIES),
        module=(
            f"def make{n}(c):\n    def inner(x):\n        return ({{e{n}}}) - c\n    return inner\n"
            f"made{n} = make{n}({{c{n}}})"
        ),
        step=f"x = made{n}(x)",
    )


def _attribute(n: int) -> Part:
    return _part(
        Slot(f"a{n}", NUMBERS),
        Slot(f"q{n}", NUMBERS, UNREAD),
        init=f"self.a{n} = {{a{n}}}\nself.q{n} = {{q{n}}}",
        step=f"x = x * model.a{n}",
    )


def _method(n: int) -> Part:
    return _part(
        Slot(f"f{n}", BODIES),
        Slot(f"y{n}", BODIES, UNREAD),
        body=(
            f"def method{n}(self, x):\n    return {{f{n}}}\n"
            f"def other{n}(self, x):\n    return {{y{n}}}"
        ),
        step=f"x = model.method{n}(x)",
    )


def _override(n: int) -> Part:
    """A method of the base class, which the Module's own class hides, or not."""
    return _part(
        Slot(f"i{n}", BODIES),
        Slot(f"j{n}", ("", f"def based{n}(self, x):\n    return x * 4.0", f"based{n} = twice")),
        module="def twice(self, x):\n    return x * 2.5",
        body=f"{{j{n}}}",
        step=f"x = model.based{n}(x)",
    )


def _property(n: int) -> Part:
    return _part(
        Slot(f"p{n}", ("0.5", "self.base_gain", "self.base_gain * 2")),
        Slot("base_gain", ("1.5", "2.5")),
        init="self.base_gain = {base_gain}",
        body=f"@property\ndef gain{n}(self):\n    return {{p{n}}}",
        step=f"x = x * model.gain{n}",
    )


def _class_value(n: int) -> Part:
    return _part(
        Slot(f"cv{n}", NUMBERS),
        Slot(f"cu{n}", NUMBERS, UNREAD),
        body=f"CV{n} = {{cv{n}}}\nCU{n} = {{cu{n}}}",
        step=f"x = x * type(model).CV{n}",
    )


def _object(n: int) -> Part:
    return _part(
        Slot(f"r{n}", NUMBERS),
        Slot(f"s{n}", NUMBERS, UNREAD),
        Slot(f"z{n}", BODIES),
        module=(
            f"class Plan{n}:\n    def __init__(self):\n        self.rate = {{r{n}}}\n"
            f"        self.spare = {{s{n}}}\n    def apply(self, x):\n        return {{z{n}}}\n"
            f"PLAN{n} = Plan{n}()"
        ),
        step=f"x = PLAN{n}.apply(x) * PLAN{n}.rate",
    )


def _static(n: int) -> Part:
    return _part(
        Slot(f"st{n}", BODIES),
        Slot(f"cm{n}", BODIES),
        module=(
            f"class Ops{n}:\n    @staticmethod\n    def one(x):\n        return {{st{n}}}\n"
            f"    @classmethod\n    def two(cls, x):\n        return {{cm{n}}}"
        ),
        step=f"x = Ops{n}.two(Ops{n}.one(x))",
    )


def _table(n: int) -> Part:
    return _part(
        Slot(f"tk{n}", ('"one"', '"two"')),
        Slot(f"t1{n}", BODIES),
        Slot(f"t2{n}", BODIES),
        module=(
            f"def one{n}(x):\n    return {{t1{n}}}\ndef two{n}(x):\n    return {{t2{n}}}\n"
            f'TABLE{n} = {{{{"one": one{n}, "two": two{n}}}}}\nKEY{n} = {{tk{n}}}'
        ),
        step=f"x = TABLE{n}[KEY{n}](x)",
    )


def _partial(n: int) -> Part:
    return _part(
        Slot(f"pa{n}", NUMBERS),
        Slot(f"pb{n}", BODIES),
        module=(
            f"def taking{n}(a, x):\n    return ({{pb{n}}}) * a\n"
            f"part{n} = functools.partial(taking{n}, {{pa{n}}})"
        ),
        step=f"x = part{n}(x)",
    )


def _enum(n: int) -> Part:
    return _part(
        Slot(f"en{n}", ("Kind.ONE", "Kind.TWO")),
        Slot("two", ("2", "3")),
        module=f"class Kind(enum.Enum):\n    ONE = 1\n    TWO = {{two}}\nE{n} = {{en{n}}}",
        step=f"x = x.sin() if E{n} is Kind.ONE else x * E{n}.value",
    )


def _environment(n: int) -> Part:
    return _part(
        Slot(f"env:AL_TEST_{n}", ("1.0", "2.0", None)),  # type: ignore[arg-type]
        Slot(f"env:AL_OTHER_{n}", ("1.0", "2.0", None), UNREAD),  # type: ignore[arg-type]
        step=f'x = x * float(os.environ.get("AL_TEST_{n}", "3.0"))',
    )


def _getenv(n: int) -> Part:
    return _part(
        Slot(f"env:AL_GOT_{n}", ("1", "2", None)),  # type: ignore[arg-type]
        step=f'x = x + int(os.getenv("AL_GOT_{n}") or 5)',
    )


def _array(n: int) -> Part:
    return _part(
        Slot(f"ar{n}", ("1.0", "2.0"), READ),
        module=f"ARR{n} = np.full((4,), {{ar{n}}}, np.float32)",
        step=f"x = x + al.tensor(ARR{n})",
    )


def _large(n: int) -> Part:
    """A list beyond what guards of one process compare (CAP-12)."""
    return _part(
        Slot(f"big{n}", ("1.0", "2.0")),
        module=f"BIG{n} = [1.0] * 700 + [{{big{n}}}]",
        step=f"x = x * BIG{n}[700]",
    )


def _function_attribute(n: int) -> Part:
    return _part(
        Slot(f"fa{n}", NUMBERS),
        module=f"def owning{n}(x):\n    return x * owning{n}.scale\nowning{n}.scale = {{fa{n}}}",
        step=f"x = owning{n}(x)",
    )


def _namespace(n: int) -> Part:
    return _part(
        Slot(f"ns{n}", NUMBERS),
        module=f"NS{n} = types.SimpleNamespace(rate={{ns{n}}}, spare=[1])",
        step=f"x = x * NS{n}.rate",
    )


def _named_tuple(n: int) -> Part:
    return _part(
        Slot(f"nt{n}", NUMBERS),
        module=(
            f'Pair{n} = collections.namedtuple("Pair{n}", "left right")\n'
            f"NT{n} = Pair{n}(1.0, {{nt{n}}})"
        ),
        step=f"x = x * NT{n}.right",
    )


def _by_text(n: int) -> Part:
    return _part(
        Slot(f"bt{n}", ('"one"', '"two"')),
        Slot(f"bo{n}", NUMBERS),
        Slot(f"bw{n}", NUMBERS),
        module=f"NAME{n} = {{bt{n}}}",
        init=f"self.one{n} = {{bo{n}}}\nself.two{n} = {{bw{n}}}",
        step=f'x = x * getattr(model, NAME{n} + "{n}")',
    )


def _written(n: int) -> Part:
    return _part(
        Slot(f"wr{n}", NUMBERS), module=f"WR{n} = {{wr{n}}}", step=f"y.add_(WR{n})\nx = x * y"
    )


def _parameter(n: int) -> Part:
    return _part(
        Slot(f"pv{n}", ("1.0", "2.0"), DATA),
        Slot(f"ps{n}", ("4", "1")),
        Slot(f"pr{n}", ("True", "False")),
        init=(
            f"self.w{n} = al.nn.Parameter(al.full(({{ps{n}}},), {{pv{n}}}), "
            f"requires_grad={{pr{n}}})"
        ),
        step=f"x = x * model.w{n}",
    )


def _outside_tensor(n: int) -> Part:
    return _part(
        Slot(f"tv{n}", ("1.0", "2.0"), DATA),
        Slot(f"td{n}", ("al.float32", "al.float64")),
        module=f"TEN{n} = al.full((4,), {{tv{n}}}, dtype={{td{n}}})",
        step=f"x = x + TEN{n}",
    )


def _inner(n: int) -> Part:
    return _part(
        Slot(f"in{n}", BODIES), step=f"def local{n}(x):\n    return {{in{n}}}\nx = local{n}(x)"
    )


def _lazy(n: int) -> Part:
    """A value that is read in a comprehension and by builtins."""
    return _part(
        Slot(f"lz{n}", ("(1, 2)", "(1, 3)", "(2, 1)")),
        module=f"LZ{n} = {{lz{n}}}",
        step=f"x = x * sum([k * k for k in LZ{n}]) - max(LZ{n})",
    )


def _absent(n: int) -> Part:
    """An attribute that is asked for and may be absent."""
    return _part(
        Slot(f"ab{n}", ("", f"self.ab{n} = 2.0", f"self.ab{n} = None")),
        init=f"{{ab{n}}}",
        step=f'x = x * 2.0 if hasattr(model, "ab{n}") else x.sin()',
    )


MAKERS: Sequence[Callable[[int], Part]] = (
    *(_global, _list, _mode, _helper, _branch, _default, _closure, _attribute, _method, _override),
    *(_property, _class_value, _object, _static, _table, _partial, _enum, _environment, _getenv),
    *(_array, _large, _function_attribute, _namespace, _named_tuple, _by_text, _written),
    *(_parameter, _outside_tensor, _inner, _lazy, _absent, _library),
)
CALL_SLOTS = (
    Slot("call:dtype", ("float32", "float64")),
    Slot("call:size", ("4", "1")),
    Slot("call:grad", ("True", "False")),
    Slot("call:same", ("False", "True")),
    Slot("call:strided", ("False", "True")),
    Slot("call:mode", ("True", "False")),
    Slot("call:number", ("2.0", "3.0", "2")),
    Slot("call:earlier", ("None", "1", "3")),
    Slot("call:values", ("0", "1", "2"), DATA),
    Slot("option:partition", ("None", "'default'", "'min_cut'")),
    Slot("option:keep_inference_input_mutations", ("None", "True", "False")),
    Slot("option:fast_paths", ("True", "False")),
    Slot("option:recompile_limit", ("32", "8"), UNREAD),
    Slot("version:numpy", ("None", "'9.9'")),
    Slot("version:optree", ("None", "'9.9'")),
)
_HEAD = "import collections, enum, functools, os, types\nimport numpy as np\nimport aotlite as al\n"


@attrs.frozen
class Program:
    """Parts in order, and a value for each slot."""

    parts: tuple[Part, ...]
    values: Mapping[str, str]

    @property
    def slots(self) -> list[Slot]:
        """All slots: those of the parts, of the call, of options and versions."""
        mine = {slot.name: slot for part in self.parts for slot in part.slots}
        return [*mine.values(), *CALL_SLOTS]

    def changed(self, slot: Slot, value: str) -> Program:
        """The program with one slot changed."""
        return Program(self.parts, {**self.values, slot.name: value})

    def source(self) -> str:
        """The text of the module, with the function `f` and the Module's class `Net`."""
        module = [_filled(part.module, self.values) for part in self.parts if part.module]
        body = [_filled(part.body, self.values) for part in self.parts if part.body]
        init = [_filled(part.init, self.values) for part in self.parts if part.init]
        step = [_filled(part.step, self.values) for part in self.parts if part.step]
        based = "\n".join(
            f"def based{name[1:]}(self, x):\n    return {self.values[name]}"
            for name in self.values
            if name[0] == "i" and name[1:].isdigit()
        )
        return "\n".join(
            [
                *(_HEAD, *dict.fromkeys(module)),
                *("class Base(al.nn.Module):", _indented([based or "pass"])),
                "class Net(Base):",
                _indented(body),
                "    def __init__(self):\n        super().__init__()",
                _indented(_indented(init).split("\n")),
                "def f(model, x, y, n):",
                _indented([*step, "return (x * n).sum(), y + 1.0"]),
            ]
        )


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text.replace("{{", "{").replace("}}", "}")


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for text in lines for line in text.split("\n") if line.strip())


def drawn(draw: random.Random, most: int = 5) -> Program:
    """A random program of up to `most` parts, with random values."""
    makers = draw.sample(MAKERS, draw.randint(1, most))
    parts = tuple([make(number) for number, make in enumerate(makers)])
    empty = Program(parts, {})
    values = {slot.name: slot.values[0] for slot in CALL_SLOTS}
    mine = [slot for slot in empty.slots if slot not in CALL_SLOTS]
    values |= {slot.name: draw.choice(slot.values) for slot in mine}
    values["call:earlier"] = ("None", "None", "1")[len(mine) % 3]
    return Program(parts, values)
