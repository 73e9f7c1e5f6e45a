"""Nothing is assumed of an argument that an entry does not check."""

import pytest

import aotlite as al


def without_grad(x):
    with al.no_grad():
        return x[:2]


ARGUMENTS = {
    "plain": lambda: al.ones(2),
    "leaf": lambda: al.ones(2, requires_grad=True),
    "inner": lambda: al.ones(2, requires_grad=True) * 1,
    "view without grad": lambda: without_grad(al.ones(4, requires_grad=True) * 1),
    "other shape": lambda: al.ones(3),
    "other dtype": lambda: al.ones(2, dtype=al.int64),
    "number": lambda: 2.0,
    "other number": lambda: 3.0,
    "integer": lambda: 2,
    "none": lambda: None,
}


@pytest.mark.rules("GRD-1", "GRD-3")
@pytest.mark.parametrize("before", ARGUMENTS)
def test_an_entry_says_what_is_not_as_it_was(before):
    """In both directions, for every pair of kinds; for its own kind it has nothing to say."""
    compiled = al.compile(lambda x, y: y * 2)
    compiled(ARGUMENTS[before](), al.ones(2))
    (entry,) = [each.guarded for each in compiled.entries]
    for now, make in ARGUMENTS.items():
        failure = entry.why_not([make(), al.ones(2)])
        assert (failure is None) == (now == before), f"{before}, then {now}"
        assert failure is None or failure.subject == "argument 0"


@pytest.mark.rules("GRD-3")
@pytest.mark.parametrize("grad", [True, False])
def test_what_requires_grad_at_one_call_only_is_compiled_again(grad):
    """PyTorch lets a tensor pass that required grad when it compiled and does not any more."""
    compiled = al.compile(lambda x: x * 2)
    for requires_grad in (grad, not grad):
        result = compiled(al.ones(2, requires_grad=requires_grad))
        assert requires_grad == result.requires_grad
    assert 2 == len(compiled.entries)


@pytest.mark.rules("CAP-12", "GRD-4")
def test_a_value_that_shares_an_object_of_another_is_named():
    first, second, third = [al.ones(2)], [al.ones(2)], [al.ones(2)]
    compiled = al.compile(lambda x: x * len(first) + len(second) * len(third))
    compiled(al.ones(2))
    second[0] = first[0]
    failure = compiled.entries[0].guarded.why_not([al.ones(2)])
    assert "second is a list of 1 with another form or other contents, expected as it was" == str(
        failure
    ).replace("closure of <lambda>, cell 1", "second")


@pytest.mark.rules("CAP-12", "GRD-3")
def test_a_container_that_a_pass_changes_is_no_silent_assumption():
    """The graph has the length of before the pass, so it may not serve the calls after it."""
    box = [1.0]

    def grow(graph):
        box.append(2.0)
        return graph

    compiled = al.compile(lambda x: x * len(box), passes=[grow])
    with pytest.raises(al.UnsupportedError, match="changed .*cell 0 while it was captured"):
        compiled(al.ones(2))
