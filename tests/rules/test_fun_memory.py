"""Functions that change the memory or the autograd state of what they are given.

Compared with eager by all that a user could observe, twice each, with and without closing copies.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import UnsupportedError
from aotlite.stages.s8_partition.closing_copies import may_stay
from tests.end_to_end.helpers.worlds import differences, refusal
from tests.rules.helpers.memory_programs import (
    KINDS,
    MemoryProgram,
    MemoryStep,
    body_of,
    made,
    numbers,
    programs,
    run,
)


def compared(program, kinds, **options):
    """What differs over two calls, one line each."""
    body = body_of(program)
    compiled = al.compile(body, verify=2, **options)
    found = []
    for each in (program.inputs, kinds):
        found += differences(run(program, each, compiled), run(program, each, body))
    return found


@pytest.mark.draws(long=400)
@pytest.mark.rules("FUN-17", "FUN-18", "FUN-19", "FUN-20", "FUN-23", "FUN-36", "FUN-37")
@pytest.mark.rules("RT-1", "RT-3", "RT-5", "GEN-2", "GEN-13")
@settings(max_examples=45)
@given(programs(), st.lists(st.sampled_from(KINDS), min_size=3, max_size=3), st.booleans())
def test_random_changes_of_inputs_equal_eager(program, kinds, keep):
    second = tuple(kinds[: len(program.inputs)])
    assert [] == compared(program, second, keep_inference_input_mutations=keep)


def steps(*texts):
    """Steps from texts `operation first second`; a `-` before the operation turns grad mode off."""
    found = []
    for text in texts:
        *words, first, second = text.split()
        op = " ".join(words)
        found.append(MemoryStep(op.removeprefix("-"), int(first), int(second), op[0] != "-"))
    return tuple(found)


FOUND = {
    "detach_ of a view, where an entry for a tensor that is none exists": MemoryProgram(
        ("plain",), steps("take out 0 0"), ()
    ),
    "a hidden alias that is put elsewhere is no view": MemoryProgram(
        ("value", "plain"), steps("-hidden 1 0", "-put window 2 1"), (2,)
    ),
    "a view that was put elsewhere is none": MemoryProgram(
        ("view",), steps("put 0 0", "take out 0 0"), ()
    ),
    "an input that is put onto another's memory did not overlap it": MemoryProgram(
        ("plain", "view"), steps("-fill 1 0", "-put 1 0"), ()
    ),
    "one hidden alias for a result and for an input's new memory": MemoryProgram(
        ("value", "view"), steps("-hidden 1 1", "put 1 2"), (2,)
    ),
    "views of a view that became a leaf do not follow it": MemoryProgram(
        ("view",), steps("track 0 0", "-tail 0 0", "fill 1 2"), ()
    ),
    "writes between two changes of memory are counted": MemoryProgram(
        ("leaf", "view", "view"), steps("-put 2 1", "-copy 2 2", "-put window 0 0"), ()
    ),
    "a result that is an input on memory of its own": MemoryProgram(
        ("plain",), steps("resize 0 4", "head 0 1"), (0, 1)
    ),
    "a leaf that is taken out and becomes one again": MemoryProgram(
        ("value",), steps("take out 0 0", "track 0 0", "times 0 0"), (1,)
    ),
    "views between two changes of state": MemoryProgram(
        ("leaf",), steps("head 0 0", "untrack 0 0", "head 0 1", "track 0 0", "tail 0 0"), (1, 2, 3)
    ),
    "views between two changes of memory": MemoryProgram(
        ("plain", "plain"), steps("put 0 1", "head 0 1", "times 1 0", "put 0 3", "tail 0 0"), (2, 4)
    ),
    "a view that was written before its base was taken out of its history": MemoryProgram(
        ("value",), steps("element 0 0", "-write 1 0", "-take out 0 0"), (1,)
    ),
    "new memory gets a history": MemoryProgram(
        ("plain", "plain", "leaf"),
        steps("head 1 2", "head 2 2", "clone 3 0", "put 0 5", "write by 0 4", "tail 0 0"),
        (6, 0),
    ),
    "two inputs change places": MemoryProgram(
        ("plain", "plain"), steps("detach 0 0", "put 0 1", "put 1 2", "tail 0 0"), (3, 2)
    ),
    "old memory is written before it is left": MemoryProgram(
        ("view", "plain"), steps("head 0 1", "write 0 0", "clone 1 0", "put 0 3", "fill 2 7"), (2,)
    ),
}


@pytest.mark.rules("FUN-18", "FUN-36", "RT-5")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_inputs_that_once_differed_agree(name, kind):
    program = FOUND[name]
    assert [] == compared(program, (kind,) * len(program.inputs))


@pytest.mark.rules("FUN-36")
def test_what_random_programs_change_is_mostly_not_refused():
    """The refusals are few: the comparison is one of what is compiled."""
    for program in FOUND.values():
        mine = run(program, program.inputs, al.compile(body_of(program)))
        assert refusal(mine) is None


# ------------------------------------------------------------------------------------ one by one
@pytest.mark.rules("RT-5")
def test_an_alias_of_the_old_memory_sees_what_was_written_before_it_was_left():
    def swap(x, y):
        x.mul_(2)
        x.set_(y.clone())
        x.add_(1)

    x, y = numbers(3, 1), numbers(2, 5)
    old = x[1:]
    compiled = al.compile(swap)
    compiled(x, y)
    assert ([4.0, 6.0], [6.0, 7.0], [5.0, 6.0]) == (old.tolist(), x.tolist(), y.tolist())
    assert compiled.meta.inputs[0].writes_storage and compiled.meta.inputs[0].writes_data


@pytest.mark.rules("SAV-2", "TEN-12")
@pytest.mark.parametrize("written", ["x", "alias", "y"])
def test_what_is_saved_of_new_memory_is_checked_as_eager_s(written):
    """By the counts of that memory: a hidden alias has its own."""

    def f(x, y, w):
        x.set_(y.clone())
        alias = y.hidden_alias()
        return (x * w).sum(), alias, (alias * w).sum()

    def world(function):
        x, y, w = numbers(3, 1), numbers(3, 5), al.ones(3, requires_grad=True)
        first, alias, second = function(x, y, w)
        {"x": x, "alias": alias, "y": y}[written].mul_(2)
        found = []
        for result in (first, second):
            try:
                result.backward(retain_graph=True)
                found.append(w.grad.tolist())
            except al.AutogradError:
                found.append("refused")
        return found

    assert world(f) == world(al.compile(f))


@pytest.mark.rules("FUN-18")
def test_an_input_that_grows_keeps_its_storage_and_its_views():
    x = numbers(2, 1)
    storage, view = x.untyped_storage(), x[1:]
    compiled = al.compile(lambda x: x.resize_(4).add_(1))
    assert compiled(x) is x
    assert x.untyped_storage() is storage and compiled.meta.inputs[0].resizes_storage
    assert ([2.0, 3.0, 1.0, 1.0], [3.0], 16) == (x.tolist(), view.tolist(), storage.nbytes())


@pytest.mark.rules("FUN-18", "GRD-1")
def test_memory_that_grew_in_one_call_may_not_in_another():
    """The number of bytes is no fact of a tensor, and is guarded where it counts."""
    compiled = al.compile(lambda x: x.resize_(4).sum())
    assert 2.0 == compiled(al.ones(2)).item()
    x = al.ones(2)
    assert [1.0, 1.0] == x.numpy().tolist()
    with pytest.raises(UnsupportedError, match="expected memory that may grow"):
        compiled(x)
    base = al.ones(6)
    with pytest.raises(UnsupportedError, match="beyond the elements of an input"):
        compiled(base[:2])
    assert [1.0] * 6 == base.tolist()


OUTSIDE: al.Tensor = al.ones(2)
REFUSED = {
    "by set_ and requires grad there": lambda x, y, w: x.set_(y).mul_(w),
    "onto memory that resize_ made grow": lambda x, y, w: y.set_(x.resize_(9)),
    "before resize_ made its storage grow": lambda x, y, w: _written_late(x),
    "set_ to a storage": lambda x, y, w: x.set_(y.untyped_storage()),
    "on a tensor that is not an argument": lambda x, y, w: OUTSIDE.set_(y),
}


def _written_late(x):
    view = x[1:]
    x.resize_(9)
    view.add_(1)


@pytest.mark.rules("GEN-2", "FUN-21")
@pytest.mark.parametrize("text", REFUSED)
def test_changes_of_memory_that_are_refused_change_nothing(text):
    x, y = numbers(3, 1), numbers(3, 5)
    w = al.ones(3, requires_grad=True)
    with pytest.raises(UnsupportedError, match=text):
        al.compile(REFUSED[text])(x, y, w)
    assert ([1.0, 2.0, 3.0], [5.0, 6.0, 7.0], 0, 0) == (
        x.tolist(),
        y.tolist(),
        x.version,
        y.version,
    )


# ------------------------------------------------------------------------------- kinds of writes
def under_no_grad(write):
    def body(x, w):
        with al.no_grad():
            write(x, w)

    return body


def both_modes(x, w):
    x.mul_(2)
    with al.no_grad():
        x.mul_(2)


IN, OUT, NOT = "the graph may write it", "it is written after the graph", "it is not written"
VECTORS = {
    "plain write": ("plain", lambda x, w: x.mul_(2), IN),
    "write with a history": ("value", lambda x, w: x.mul_(2), OUT),
    "under no_grad": ("value", under_no_grad(lambda x, w: x.mul_(2)), IN),
    "through detach": ("value", lambda x, w: x.detach().mul_(2), OUT),
    "hidden alias": ("leaf", lambda x, w: x.hidden_alias().zero_(), IN),
    "geometry": ("plain", lambda x, w: x.unsqueeze_(0), OUT),
    "geometry and bytes": ("plain", lambda x, w: x.unsqueeze_(0).mul_(2), OUT),
    "geometry under no_grad": ("plain", under_no_grad(lambda x, w: x.unsqueeze_(0).mul_(2)), OUT),
    "other memory": ("plain", lambda x, w: x.set_(w.detach().clone()), OUT),
    "a larger memory": ("plain", lambda x, w: x.resize_(9), OUT),
    "through a view": ("plain", lambda x, w: x[0].add_(1), IN),
    "in both modes": ("value", both_modes, OUT),
    "by what requires grad": ("plain", lambda x, w: x.mul_(w), OUT),
    "onto itself": ("plain", lambda x, w: x.copy_(x), IN),
    "there and back": ("plain", lambda x, w: x.mul_(2).div_(2), IN),
    "a change of geometry that is none": ("plain", lambda x, w: x.squeeze_(0), NOT),
    "two that cancel": ("plain", lambda x, w: x.unsqueeze_(0).squeeze_(0), NOT),
    "autograd state": ("plain", lambda x, w: x.requires_grad_(), NOT),
    "no write": ("plain", lambda x, w: x * 2, NOT),
}


@pytest.mark.rules("META-28", "META-3", "META-2", "FUN-21", "FUN-24")
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", VECTORS)
def test_the_kind_of_a_write_is_that_of_the_table(name, keep):
    """And a graph without backward writes what may stay, if it is asked to."""
    kind, write, expected = VECTORS[name]
    compiled = al.compile(lambda x, w: (write(x, w), None)[1], keep_inference_input_mutations=keep)
    compiled(made((kind,))[0], al.ones(2, requires_grad=True))
    record = compiled.meta.inputs[0]
    is_written = record.writes or record.written_late
    assert expected is ((IN if may_stay(record) else OUT) if is_written else NOT)
    assert (keep and expected is IN) == record.in_graph
    flags = (record.through_hidden_alias, record.writes_storage, record.resizes_storage)
    assert (name == "hidden alias", name == "other memory", name == "a larger memory") == flags


@pytest.mark.rules("META-28")
def test_other_memory_is_eager_s_error_where_grad_is_on_and_the_input_requires_it():
    x = al.ones(2, requires_grad=True)
    with pytest.raises(al.AutogradError, match="^set_: the tensor requires grad"):
        al.compile(lambda x: x.set_(al.zeros(2)))(x)
    assert [1.0, 1.0] == x.tolist()


@pytest.mark.rules("FUN-24")
@pytest.mark.parametrize("keep", [False, True])
def test_each_mix_of_written_and_returned_inputs_returns_the_inputs_themselves(keep):
    def mix(x, y, z):
        x.add_(1)
        y.mul_(3)
        return z, y, x[0], y[0], x

    leaf = al.ones(2, requires_grad=True)
    for x in (leaf * 1, al.ones(2)):
        y, z = al.ones(2) * 2, al.ones(2)
        found = al.compile(mix, keep_inference_input_mutations=keep)(x, y, z)
        assert found[0] is z and found[1] is y and found[4] is x
        assert ([2.0, 2.0], [6.0, 6.0]) == (x.tolist(), y.tolist())
        assert (2.0, 6.0) == (found[2].item(), found[3].item())


@pytest.mark.rules("FUN-36")
def test_the_record_says_what_changes():
    def change(x, y):
        x.requires_grad_()
        y.set_(x.detach().clone())
        return y[0]

    compiled = al.compile(change)
    compiled(al.ones(2), al.ones(3))
    text = compiled.meta.explain()
    assert "Its autograd state changes at each call, by .requires_grad_()." in text
    assert "It is put onto other memory at each call, that of intermediate base 0;" in text


@pytest.mark.rules("FUN-18")
@pytest.mark.parametrize("fast_paths", [True, False])
def test_a_history_that_an_input_gets_on_other_memory_is_its_own(fast_paths):
    """The tensor that it was put onto, and views of that, have none."""

    def function(x, y, w):
        inner = x.neg()
        x.set_(inner)
        y.set_(inner)
        x.mul_(w)
        return inner.view(2, 2), x.view(2, 2)

    for called in (function, al.compile(function, fast_paths=fast_paths)):
        x, y, w = al.ones(4), al.zeros(4), al.full((4,), 3.0).requires_grad_()
        of_inner, of_input = called(x, y, w)
        assert [False, True, True, False] == [
            each.requires_grad for each in (of_inner, of_input, x, y)
        ]
        of_input.sum().backward()
        assert w.grad is not None
        assert [-1.0] * 4 == w.grad.tolist()
