"""Bad aliasing: the verdict of a compiled call is eager's, which is that of the sets of addresses.

Writes of windows that overlap themselves or, in part, an operand; aliased inputs of which one is a
leaf that requires grad; a pattern of aliases that the entry was not made for; inputs written while
outputs are alive. Where a call raises, nothing has changed.
"""

import itertools

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import aotlite as al
from tests.end_to_end.helpers.cases import Call
from tests.end_to_end.helpers.worlds import World, differences, world_of
from tests.helpers.programs import Ref, Step

ROOM = 18


# ------------------------------------------------------------------------------------ the writes
def write_at_index(t, s):
    t[al.tensor([0])] = s[:1]


def write_row(t, s):
    t[0] = s[0]


def write_number(t, s):
    t[...] = 7.0


def mask_of(t):
    return al.ones(t.shape, dtype=al.bool)


def first_of(t):
    return al.zeros(t.shape, dtype=al.int64)


ALONE = {
    "mul_": lambda t, s: t.mul_(2),
    "neg_": lambda t, s: t.neg_(),
    "masked_fill_": lambda t, s: t.masked_fill_(mask_of(t), 3),
    "index_fill_": lambda t, s: t.index_fill_(0, al.tensor([0]), 3),
    "add": lambda t, s: al.add(al.ones(t.shape, dtype=al.float64), 1, out=t),
}
"""Writes of each element, which need a place for each."""

OF_ONE_VALUE = {
    "fill_": lambda t, s: t.fill_(3),
    "zero_": lambda t, s: t.zero_(),
    "number": write_number,
}
"""TEN-7: these give all elements one value."""

WITH_OPERAND = {
    "add_": lambda t, s: t.add_(s),
    "addcmul_": lambda t, s: t.addcmul_(al.ones(t.shape, dtype=al.float64), s),
    "copy_": lambda t, s: t.copy_(s),
    "masked_scatter_": lambda t, s: t.masked_scatter_(mask_of(t), s),
    "index_add_": lambda t, s: t.index_add_(0, al.arange(t.shape[0]), s),
    "index_copy_": lambda t, s: t.index_copy_(0, al.arange(t.shape[0]), s),
    "scatter_": lambda t, s: t.scatter_(0, first_of(t), s),
    "sub": lambda t, s: al.sub(s, 1, out=t),
    "cat": lambda t, s: al.cat([s[:1], s[1:]], out=t),
}

WRITES = ALONE | OF_ONE_VALUE | WITH_OPERAND | {"row": write_row, "index_put_": write_at_index}


# ------------------------------------------------------------------------------------- geometries
@st.composite
def windows(draw, shape):
    """Strides and an offset within the room for a window of this shape."""
    strides = tuple(draw(st.sampled_from((0, 1, 1, 2, 3, 4, 6))) for _ in shape)
    reach = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    assume(reach < ROOM)
    return shape, strides, draw(st.integers(0, ROOM - 1 - reach))


@st.composite
def pairs(draw):
    """A destination and an operand of one shape."""
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    target = draw(windows(shape))
    return target, draw(st.one_of(st.just(target), windows(shape), windows(shape)))


def places(window):
    """For each index of a window its address."""
    shape, strides, offset = window
    indices = itertools.product(*map(range, shape))
    return [offset + sum(i * s for i, s in zip(at, strides, strict=True)) for at in indices]


def seen_by(name, target, operand):
    """The window that a write fills, and those that it reads."""
    (first, *rest), strides, offset = operand
    head = ((1, *rest), strides, offset)
    tail = ((first - 1, *rest), strides, offset + strides[0])
    if name in ALONE | OF_ONE_VALUE:
        return target, []
    if name == "row":
        shape, steps, start = target
        return (shape[1:], steps[1:], start), [(tuple(rest), strides[1:], offset)]
    if name == "index_put_":
        return target, [head]
    return target, [head, tail] if name == "cat" else [operand]


def is_refused(name, target, operand):
    """What the sets of addresses say of a write (TEN-7, TEN-8)."""
    target, operands = seen_by(name, target, operand)
    mine = places(target)
    if len(set(mine)) < len(mine):
        return name not in OF_ONE_VALUE
    return any(mine != its and set(mine) & set(its) for its in map(places, operands))


class Memory:
    """A buffer, two windows on it, and what can be observed of all three."""

    def __init__(self, target, operand):
        self.buffer = al.arange(ROOM, dtype=al.float64) + 1
        self.target, self.operand = [self.buffer.as_strided(*each) for each in (target, operand)]

    def state(self):
        tensors = (self.buffer, self.target, self.operand)
        return [
            (t.shape, t.stride(), t.storage_offset(), t.version, t.requires_grad, t.tolist())
            for t in tensors
        ]


def outcome(call, memory):
    """The error of a call, None if it raises none; after an error all is as it was."""
    before = memory.state()
    try:
        call()
    except Exception as error:
        assert before == memory.state()
        return error
    return None


def compare_writes(name, target, operand, compiled, arguments):
    """The verdicts of brute force, eager and compiled, twice; and the state that they leave."""
    mine, its = Memory(target, operand), Memory(target, operand)
    for _ in range(2):
        eager = outcome(lambda: WRITES[name](its.target, its.operand), its)
        error = outcome(lambda: compiled(*arguments(mine)), mine)
        assert is_refused(name, target, operand) == isinstance(eager, al.AliasError), eager
        assert type(eager) is type(error), error
        assert str(eager) == str(error)
        if eager is None:
            assert its.state() == mine.state()
        elif name in OF_ONE_VALUE | ALONE | WITH_OPERAND:
            names_all(eager, name)


def names_all(error, name):
    """The message says which op and which of its arguments; a note, what to do."""
    assert str(error).startswith(f"{name}: ")
    assert any(word in str(error) for word in ("the destination", "argument '", "an operand"))
    assert any("clone()" in note for note in error.__notes__)


@pytest.mark.draws(long=600)
@pytest.mark.rules("TEN-7", "TEN-8", "ALI-5", "GEN-2")
@settings(max_examples=75)
@given(st.sampled_from(sorted(WRITES)), pairs())
@example("add_", (((3,), (1,), 1), ((3,), (1,), 0)))
@example("copy_", (((2, 2), (1, 1), 0), ((2, 2), (2, 1), 8)))
@example("cat", (((2,), (2,), 0), ((2,), (2,), 1)))
@example("copy_", (((1, 3), (4, 1), 0), ((1, 3), (1, 1), 0)))
def test_writes_of_windows_taken_inside_have_eagers_verdict(name, pair):
    target, operand = pair

    def body(buffer):
        WRITES[name](buffer.as_strided(*target), buffer.as_strided(*operand))

    compiled = al.compile(body)
    compare_writes(name, target, operand, compiled, lambda memory: [memory.buffer])


@pytest.mark.draws(long=600)
@pytest.mark.rules("TEN-7", "TEN-8", "ALI-1", "ALI-5", "GEN-2")
@settings(max_examples=75)
@given(st.sampled_from(sorted(WRITES)), pairs())
@example("add_", (((3,), (1,), 1), ((3,), (1,), 0)))
@example("mul_", (((3,), (1,), 1), ((3,), (1,), 0)))
@example("copy_", (((2,), (2,), 0), ((2,), (2,), 1)))
def test_writes_of_windows_passed_as_arguments_have_eagers_verdict(name, pair):
    def body(target, operand):
        WRITES[name](target, operand)

    compiled = al.compile(body)
    compare_writes(name, *pair, compiled, lambda memory: [memory.target, memory.operand])


@pytest.mark.draws(long=240)
@pytest.mark.rules("TEN-7", "GRD-2")
@settings(max_examples=40)
@given(st.sampled_from(sorted(WITH_OPERAND)), pairs(), pairs())
def test_a_refusal_leaves_a_compiled_function_as_good_as_before(name, first, second):
    """The other call's geometry is another one, and the first one's comes again."""
    compiled = al.compile(lambda target, operand: WRITES[name](target, operand).sum())
    for target, operand in (first, second, first):
        mine, its = Memory(target, operand), Memory(target, operand)
        eager = outcome(lambda its=its: WRITES[name](its.target, its.operand), its)
        error = outcome(lambda mine=mine: compiled(mine.target, mine.operand), mine)
        assert type(eager) is type(error), error
        assert its.state() == mine.state()


# ------------------------------------------------------------------- what the base of a view tells
BASES = {
    "dense": lambda: numbers(*range(8)).view(4, 2),
    "spread": lambda: numbers(*range(16)).view(4, 4).detach()[:, ::2],
    "expanded": lambda: numbers(*range(4)).unsqueeze(1).expand(4, 2),
    "windows": lambda: numbers(*range(8)).as_strided((4, 2), (2, 0)),
}
PARTS = {"column": lambda b: b[:, 0], "rows": lambda b: b[1:3], "itself": lambda b: b[:]}


@pytest.mark.rules("TEN-7", "GRD-1", "GRD-2")
@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(BASES)), st.sampled_from(sorted(PARTS))),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
@example([("dense", "column"), ("expanded", "column")], True)
@example([("windows", "column")], True)
def test_a_view_that_is_passed_alone_is_told_by_its_base(pairs, tracked):
    """A write with a history needs a base with one place for each element; without one it does not.

    The base is nowhere to be seen by the function.
    """
    compiled = al.compile(write_by)
    for base, part in [*pairs, *pairs[:1]]:
        compare_worlds(
            write_by,
            compiled,
            lambda base=base, part=part: _given_alone(base, part, tracked),
            Call((0, 1)),
        )


def write_by(x, w):
    return [x.mul_(w).sum()]


def _given_alone(base, part, tracked):
    view = PARTS[part](BASES[base]().detach())
    weight = al.ones(view.shape, dtype=al.float64) * 2
    return [view, weight.requires_grad_(tracked)]


# ------------------------------------------------------------------------------------- the worlds
def compare_worlds(function, compiled, setup, call):
    """Eager and compiled in equal worlds: no difference, and of errors class and text."""
    its, mine = world_of(function, setup(), call), world_of(compiled, setup(), call)
    assert type(its.error) is type(mine.error), mine.error
    if its.error is not None:
        assert str(its.error) == str(mine.error)
        assert mine.untouched  # eager may have written something before
    assert [] == differences(mine, its)
    return its


def leaf(*values):
    return al.tensor([*map(float, values)], dtype=al.float64, requires_grad=True)


def numbers(*values):
    return al.tensor([*map(float, values)], dtype=al.float64)


# -------------------------------------------------------------- aliases of which one is a leaf
LEAVES = {
    "leaf, detached": lambda w: (w, w.detach()),
    "detached, leaf": lambda w: (w.detach(), w),
    "leaf, view": lambda w: (w, w[:3]),
    "leaf, view without grad": lambda w: (w, _without_grad(lambda: w[:3])),
    "view, overlapping view": lambda w: (w[:3], w[1:]),
    "leaf, part of detached": lambda w: (w, w.detach()[1:]),
    "part of detached, view": lambda w: (w.detach()[1:], w[:3]),
    "leaf twice": lambda w: (w, w),
    "leaf on a part, base": lambda w: _leaf_on_a_part(w),
}


def _without_grad(make):
    with al.no_grad():
        return make()


def _leaf_on_a_part(w):
    base = w.detach() * 1
    return base[1:].requires_grad_(), base


def _mode(under_no_grad):
    return al.no_grad() if under_no_grad else al.enable_grad()


@pytest.mark.rules("TEN-15", "RT-4", "ALI-1", "GEN-2")
@pytest.mark.parametrize("relation", LEAVES)
@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("under_no_grad", [False, True])
def test_aliased_inputs_of_which_one_is_a_leaf(relation, written, under_no_grad):
    """Eager forbids the leaf and its views, and lets the bytes be written by another way."""

    def body(x, y):
        before = x.sum() * 2
        with _mode(under_no_grad):
            (x, y)[written].mul_(3)
        return before, (x * 2).sum() + (y * 5).sum(), (x, y)[written]

    def setup():
        w = leaf(1, 2, 3, 4)
        return [w, *LEAVES[relation](w)]

    compiled = al.compile(body)
    for _ in range(2):
        compare_worlds(body, compiled, setup, Call((1, 2)))


@pytest.mark.rules("TEN-15")
def test_some_of_these_calls_raise_and_some_do_not():
    """Else the test above would show one half only."""
    verdicts = set()
    for make in LEAVES.values():
        x, _ = make(leaf(1, 2, 3, 4))
        try:
            x.mul_(3)
            verdicts.add("written")
        except al.AutogradError:
            verdicts.add("refused")
    assert {"written", "refused"} == verdicts


# ------------------------------------------------------------------------- patterns of aliases
def _buffer(history):
    root = al.arange(12, dtype=al.float64) + 1
    return root.requires_grad_() * 1 if history else root


def _on(buffer, *starts, step=1):
    return [buffer[start : start + 4 * step : step] for start in starts]


PATTERNS = {
    "separate": lambda b: [b[:4] * 1, b[4:8] * 1],
    "one object": lambda b: [b[:4]] * 2,
    "base and view": lambda b: (lambda x: [x, x.view(4)])(b[:4] * 1),
    "view and base": lambda b: (lambda x: [x[:], x])(b[:4] * 1),
    "overlapping siblings": lambda b: _on(b, 0, 2),
    "overlapping otherwise": lambda b: _on(b, 3, 2),
    "disjoint": lambda b: _on(b, 0, 4),
    "disjoint, farther": lambda b: _on(b, 6, 0),
    "detached": lambda b: (lambda x: [x, x.detach()])(b[:4] * 1),
    "a part, detached": lambda b: [b[:4], b.detach()[2:6]],
    "bytes as integers": lambda b: (lambda x: [x, x.detach().view(al.int64)])(b[:4] * 1),
}

BODIES = {
    "reads": lambda x, y: (x * 2 + y,),
    "writes x": lambda x, y: (x.mul_(2), y + 1),
    "writes y": lambda x, y: (y.mul_(3), x + 1),
    "writes both": lambda x, y: (x.mul_(2), y.mul_(3), x + y),
    "writes a part": lambda x, y: (x[1:3].mul_(2), y + 1, y[2:]),
    "bytes alone": lambda x, y: (_without_grad(lambda: x.mul_(2)), x + y),
    "is": lambda x, y: (x.mul_(2), y + (100 if x is y else 1000)),
}


def play(body, names, history):
    """The calls of one compiled function with these patterns, each compared with eager's.

    How many entries it had after each call.
    """
    compiled = al.compile(body)
    counts = []
    for name in names:

        def setup(name=name):
            buffer = _buffer(history)
            return [buffer, *PATTERNS[name](buffer)]

        compare_worlds(body, compiled, setup, Call((1, 2)))
        counts.append(len(compiled.entries))
    return counts


@pytest.mark.rules("GRD-2", "DUP-5", "DUP-2", "SYN-1")
@pytest.mark.thinned(6)
@pytest.mark.parametrize("history", [False, True], ids=["plain", "with history"])
@pytest.mark.parametrize("body", BODIES)
def test_each_pattern_after_each_other_and_the_first_again(body, history):
    """One compiled function, called with pattern A, B and A: each A and B, in one history."""
    number = 2 * list(BODIES).index(body) + history
    for (a, first), (b, second) in itertools.product(enumerate(PATTERNS), repeat=2):
        if (a + b + number) % 4 == 0:  # each pair with three or four of the bodies
            play(BODIES[body], (first, second, first), history)


@pytest.mark.long
@pytest.mark.rules("GRD-2", "DUP-5", "DUP-2", "SYN-1")
@pytest.mark.parametrize("history", [False, True], ids=["plain", "with history"])
@pytest.mark.parametrize("body", BODIES)
def test_each_pattern_after_each_other_with_and_without_history(body, history):
    for first, second in itertools.product(PATTERNS, repeat=2):
        play(BODIES[body], (first, second, first), history)


@pytest.mark.rules("GRD-2", "DUP-5")
def test_a_pattern_that_comes_again_finds_its_entry():
    """And patterns share one where nothing of the function depends on what tells them apart."""
    told = set()
    for first, second in itertools.product(PATTERNS, repeat=2):
        counts = play(BODIES["writes both"], (first, second, first, second), False)
        assert counts[1:] == counts[1:2] * 3, (first, second)
        told |= {(first, second)} if counts[1] == 2 else set()
    assert all((a, b) in told for a in ("separate", "one object") for b in PATTERNS if b != a)
    assert not any((a, a) in told for a in PATTERNS)
    assert ("disjoint", "disjoint, farther") not in told
    assert ("overlapping siblings", "overlapping otherwise") in told


FAMILIES = {
    "parts": lambda root: (root[:8], root[4:]),
    "parts of a view": lambda root: (root.view(3, 4).view(12)[:8], root[4:]),
    "by another op": lambda root: (root.narrow(0, 0, 8), root[4:]),
    "of a base of another form": lambda root: _parts_of(root.view(3, 4) * 1),
    "base and part": lambda root: (root[:], root[4:]),
    "of bases of their own": lambda root: (root[:8], (root * 1)[4:]),
    "one detached": lambda root: (root[:8], root.detach()[4:]),
}
"""Two windows of eight numbers each, most at the same distance, by other views of other bases."""


def _parts_of(table):
    return table.view(12)[:8], table.view(12)[4:]


@pytest.mark.rules("GRD-2", "SYN-7")
@pytest.mark.parametrize("first", FAMILIES)
def test_each_family_of_views_after_each_other_and_the_first_again(first):
    """The gradient of a write goes through the base, by the views that led to the argument."""

    def body(x, y):
        x.mul_(y.sum())
        return (x * 3).sum() + (y * y).sum(), x, y

    for second in FAMILIES:
        compiled = al.compile(body)
        for name in (first, second, first):

            def setup(name=name):
                w = leaf(*range(1, 13))
                return [w, *FAMILIES[name](w * 1)]

            compare_worlds(body, compiled, setup, Call((1, 2)))


# ---------------------------------------------------------- outputs alive while inputs are written
KEPT = {
    "saves x": lambda x, y: (x * y,),
    "saves neither": lambda x, y: (x + y,),
    "saves its result": lambda x, y: ((x + y).exp(),),
    "a view of x": lambda x, y: (x.view(2, 2), x * 2),
    "x itself": lambda x, y: (x, x * y),
    "two views of a result": lambda x, y: (lambda z: (z[:2], z[1:], z * z))(x * y),
    "a view of y written": lambda x, y: (y.mul_(2), y[1:], x * y),
}


@pytest.mark.rules("SAV-2", "RT-6", "TEN-12")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("body", KEPT)
@pytest.mark.parametrize("target", range(6))
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("op", ["mul_", "add_"])
def test_writes_of_what_a_call_was_given_or_gave_while_its_outputs_are_alive(
    body, target, grad, op
):
    """Views see the bytes, other outputs do not; backwards miss what eager's miss."""
    function = KEPT[body]
    write = Step(op, (Ref(target), 2), grad=grad)

    def setup():
        x, y = leaf(1, 2, 3, 4) * 1, numbers(5, 6, 7, 8)
        return [x, y, x.view(2, 2), y.detach()[1:]]

    compiled = al.compile(function)
    for backward in ("together", "each"):
        call = Call((0, 1), after=(write,), backward=backward)
        compare_worlds(function, compiled, setup, call)


@pytest.mark.rules("SAV-2")
def test_a_saved_input_that_is_written_is_missed_with_eagers_error_class():
    """Named, since the table above would not show that anything raises at all."""
    texts = []
    for function in (KEPT["saves x"], al.compile(KEPT["saves x"])):
        x, y = leaf(1, 2), numbers(3, 4)
        (result,) = function(x, y)
        y.add_(1)
        with pytest.raises(al.AutogradError, match="is at version 1, expected version 0") as caught:
            result.sum().backward()
        texts.append(str(caught.value).partition(": ")[2])
        assert x.grad is None
    for text in texts:
        assert text.startswith("a saved tensor f64[2]")


def test_the_worlds_can_differ():
    """A function that leaves out its write is told from eager."""
    setup = [numbers(1, 2), numbers(3, 4)]
    worlds = [
        world_of(function, [each * 1 for each in setup], Call((0, 1)))
        for function in (BODIES["writes x"], lambda x, y: (x * 2, y + 1))
    ]
    assert isinstance(worlds[0], World)
    assert differences(*worlds)


@pytest.mark.draws(long=400)
@pytest.mark.rules("TEN-7", "TEN-8")
@settings(max_examples=50)
@given(st.sampled_from(sorted(WITH_OPERAND)), pairs())
@example("add_", (((1, 3), (3, 1), 2), ((1, 3), (0, 1), 2)))
@example("scatter_", (((2, 2), (2, 1), 0), ((2, 2), (2, 1), 0)))
def test_an_operand_in_memory_that_is_written_counts_as_a_copy(name, pair):
    """Where a write is allowed: it reads each element before that is written."""
    target, operand = pair
    assume(not is_refused(name, target, operand))
    left = []
    for write in (
        lambda t, s: WRITES[name](t, s.clone()),
        lambda t, s: WRITES[name](t, s),
        al.compile(lambda t, s: WRITES[name](t, s)),
    ):
        memory = Memory(target, operand)
        write(memory.target, memory.operand)
        left.append(memory.buffer.tolist())
    assert [left[0]] * 3 == left


@pytest.mark.torch
@pytest.mark.rules("TEN-8")
def test_pytorch_tells_places_by_strides():
    """It refuses an operand in the destination's own place if its strides are others, and computes
    with one that overlaps it in part if that has gaps: each row sees what the one before wrote."""
    torch = pytest.importorskip("torch")

    def mul(lib, shape, view):
        x = lib.arange(float(shape[0] * shape[-1])).reshape(shape) + 1
        return x.add_(view(x)).tolist()

    for shape, view in [((1, 3), lambda x: x.select(0, -1)), ((1,), lambda x: x.select(0, -1))]:
        assert mul(al, shape, lambda x, view=view: view(x).clone()) == mul(al, shape, view)
        with pytest.raises(RuntimeError, match="some elements of the input tensor"):
            mul(torch, shape, view)
    with pytest.raises(al.AliasError, match="in part"):
        mul(al, (2, 2), lambda x: x[:, :1])
    assert [[2.0, 4.0], [6.0, 10.0]] == mul(torch, (2, 2), lambda x: x[:, :1])
    assert [[2.0, 3.0], [6.0, 7.0]] == mul(torch, (2, 2), lambda x: x[:, :1].clone())
