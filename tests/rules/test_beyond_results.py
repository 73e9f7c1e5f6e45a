"""Flaws of PyTorch in what compiled functions return, each by its smallest program (META, RT)."""

import pytest

from tests.rules.helpers.ways import SAME


@pytest.mark.rules("META-11")
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_view_taken_before_its_base_changes_its_form(way, requires_grad):
    x = way.arange(2, 3)
    x = x.requires_grad_().mul(1) if requires_grad else x

    def turn(x):
        v = x.view(-1)
        x.t_()
        return v

    call = way.compiled(turn)
    got = way.outcome(lambda: call(x).tolist())
    pytorch = "raises ValueError" if requires_grad else SAME
    way.shows(got, [0, 1, 2, 3, 4, 5], pytorch=pytorch)


@pytest.mark.rules("META-12")
def test_parts_of_an_input_have_backwards_of_their_own(way):
    """PR #186503: in PyTorch they share one, which the first call frees."""
    x = way.leaf([[1.0], [2.0]])
    first, second = way.compiled(lambda x: x.unbind(0))(x)
    first.sum().backward()
    got = way.outcome(lambda: second.sum().backward())
    way.shows(
        (got, x.grad.tolist()), (None, [[1], [1]]), pytorch=("raises RuntimeError", [[1], [0]])
    )


@pytest.mark.rules("META-12")
def test_a_part_of_an_intermediate_is_not_to_be_written(way):
    first, _ = way.compiled(lambda x: (x * 2).unbind(0))(way.leaf([[1.0], [2.0]]))
    got = way.outcome(lambda: first.mul_(2).tolist())
    way.shows(got, "raises RuntimeError", pytorch=[4])


@pytest.mark.rules("META-12")
def test_parts_of_an_intermediate_share_its_memory(way):
    x = way.leaf([[1.0], [2.0]])

    def parts(x):
        y = x * 2
        return y, y.unbind(0)

    whole, (first, _) = way.compiled(parts)(x)
    with way.lib.no_grad():
        first.fill_(7)
    told = way.base(first) is whole, whole.tolist()
    way.shows(told, (True, [[7], [4]]), pytorch=(False, [[7], [4]]))


@pytest.mark.rules("META-13")
def test_results_without_gradients_share_memory_too(way):
    """#191449: in PyTorch, where the backend's results do."""

    def pair(x):
        y = x * 2
        return y, y.view(-1)

    with way.lib.no_grad():
        y, v = way.copying(pair)(way.arange(2, 2))
    y.mul_(10)
    told = way.base(v) is y, v.tolist()
    way.shows(told, (True, [0, 20, 40, 60]), pytorch=(False, [0, 2, 4, 6]))


@pytest.mark.rules("META-13")
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_view_that_is_returned_twice_is_one_object(way, requires_grad):
    x = way.arange(2, 2).requires_grad_(requires_grad)

    def twice(x):
        v = (x * 2).view(-1)
        return v, v

    first, second = way.compiled(twice)(x)
    way.shows(first is second, True, pytorch=False if requires_grad else SAME)


@pytest.mark.rules("RT-6", "TEN-21")
@pytest.mark.parametrize("of_input", [True, False])
def test_a_view_made_under_no_grad_has_no_history(way, of_input):
    """PyTorch makes it again with grad on; or gives it the history of its base."""

    def look(x):
        y = x if of_input else x * 2
        with way.lib.no_grad():
            v = y[0]
        return v, y

    v, y = way.compiled(look)(way.leaf([[1.0, 2.0]]).mul(1))
    told = v.requires_grad, v.grad_fn is None, way.base(v) is y
    way.shows(told, (True, True, True), pytorch=(True, False, True))


@pytest.mark.rules("RT-6", "TEN-21")
def test_a_view_made_under_no_grad_of_what_is_not_returned_requires_grad(way):
    def look(x):
        y = x * 2
        with way.lib.no_grad():
            return y[0]

    v = way.compiled(look)(way.leaf([[1.0, 2.0]]))
    told = v.requires_grad, v.grad_fn is None, way.base(v) is None
    way.shows(told, (True, True, False), pytorch=(True, False, True))


@pytest.mark.rules("RT-7")
def test_a_view_that_is_made_again_has_its_ops_node(way):
    """#111081: `as_strided` is slow to differentiate and hides what was done."""

    def views(x):
        y = x * 2
        return y.view(-1), y.t(), x[0]

    got = way.compiled(views)(way.leaf([[1.0, 2.0]]).mul(1))
    names = [way.node(o).replace("Backward", "").lower() for o in got]
    way.shows(names, ["view", "t", "select"])


@pytest.mark.rules("RT-10")
def test_a_call_that_fails_inside_the_graph_has_written_nothing(way):
    """An error of values. Eager has written when it raises."""

    def write_and_pick(x, i):
        x.mul_(2)
        return x[i] + 1

    call = way.compiled(write_and_pick)
    call(way.arange(3), way.lib.tensor([0, 1]))
    x = way.arange(3)
    got = way.outcome(lambda: call(x, way.lib.tensor([0, 9])))
    written = [0, 2, 4] if not way.compiles else [0, 1, 2]
    assert ("raises IndexError", written) == (got, x.tolist())
