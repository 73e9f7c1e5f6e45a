"""One tensor at several places of a call: one input, one record, one gradient."""

import pytest
from hypothesis import given, settings

import aotlite as al
from aotlite.ir.graph.role import MutatedInput, Primal
from aotlite.stages.records.metadata.function_facts import AliasOfInput, IsInput
from tests.rules.helpers.sharing_sessions import WRITES, objects_of, sessions, written_overlap


@pytest.mark.rules("DUP-1")
def test_a_repeat_is_no_input_of_the_graph():
    compiled = al.compile(lambda x, y, z: x * y + z)
    a, b = al.tensor([3.0], requires_grad=True), al.tensor([5.0], requires_grad=True)
    compiled(a, b, a).backward()
    assert (6.0, 3.0) == (a.grad.item(), b.grad.item())
    assert ["primals_0", "primals_1"] == [str(each.role) for each in compiled.meta.inputs]


@pytest.mark.draws(long=60)
@pytest.mark.rules("DUP-1", "DUP-3")
@settings(max_examples=12)
@given(sessions(history=True, hidden=False))
def test_each_object_has_one_record_under_its_first_place(session):
    """And a result that is or views an argument is recorded as of the first place of its object."""
    for pattern in session.patterns:
        if written_overlap(session, pattern):
            continue
        compiled = al.compile(session.body)
        made, passed = session.setup(pattern)
        arguments = [made[i] for i in passed]
        results = compiled(*arguments)
        firsts = [Primal(i) for i in dict.fromkeys(objects_of(pattern))]
        assert firsts == [each.role for each in compiled.meta.inputs]
        for result, kind in zip(results, compiled.meta.outputs, strict=True):
            if isinstance(kind, (AliasOfInput, IsInput)):
                assert kind.role in firsts
                assert arguments[kind.role.index].storage is result.storage


@pytest.mark.draws(long=60)
@pytest.mark.rules("DUP-3")
@settings(max_examples=12)
@given(sessions(history=True, hidden=False))
def test_a_repeat_has_one_tangent_where_its_history_changes(session):
    """However often it is passed and written (META-16)."""
    for pattern in session.patterns:
        if written_overlap(session, pattern):
            continue
        compiled = al.compile(session.body)
        made, passed = session.setup(pattern)
        compiled(*[made[i] for i in passed])
        first = objects_of(pattern)
        changed = {
            first[i]
            for what, i, k in session.steps
            if what in WRITES - {"bytes alone"} and not (what == "copy" and first[i] == first[k])
        }
        tangents = [each.of for each in compiled.meta.tangents if isinstance(each, MutatedInput)]
        assert len(tangents) == len(set(tangents))
        own = {Primal(i) for i in changed if pattern[i][0] == "own"}
        assert own == {role for role in tangents if _is_own(role, pattern)}
        # Parts of one base have one history, and so one tangent, or one each.
        assert (len(own) < len(changed)) == (len(own) < len(tangents))


def _is_own(role, pattern):
    return isinstance(role, Primal) and pattern[role.index][0] == "own"


def no_grad_write_of_a_repeat(x, y):
    with al.no_grad():
        x.mul_(2)
    return x * y


@pytest.mark.rules("DUP-3", "META-16")
def test_a_repeat_written_without_history_needs_no_tangent():
    """The product alone: PyTorch counts each place that is written, and fails."""
    a = al.tensor([3.0, 4.0], requires_grad=True)
    compiled = al.compile(no_grad_write_of_a_repeat)
    compiled(a, a).sum().backward()
    assert [12.0, 16.0] == a.grad.tolist()
    assert ["tangents_output_0"] == [f"tangents_{each}" for each in compiled.meta.tangents]
