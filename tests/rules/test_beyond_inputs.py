"""Changes of inputs that PyTorch loses or counts wrongly, each by its smallest program."""

import pytest


@pytest.mark.rules("FUN-19")
def test_a_hidden_write_moves_no_counter(way):
    x = way.arange(3)
    call = way.compiled(lambda x: way.hidden(x).mul_(2) + 1)
    got = call(x).tolist()
    told = got, x.tolist(), way.version(x)
    way.shows(told, ([1, 3, 5], [0, 2, 4], 0), pytorch=([1, 3, 5], [0, 2, 4], 2))


@pytest.mark.rules("FUN-36")
def test_an_input_that_is_detached_inside_is_a_leaf_afterwards(way):
    x = way.leaf([1.0, 2.0]).mul(1)

    def detach(x):
        x.detach_()
        return x * 2

    got = way.compiled(detach)(x)
    told = x.requires_grad, x.is_leaf, got.requires_grad
    way.shows(told, (False, True, False), pytorch=(True, False, False))


@pytest.mark.rules("FUN-36")
def test_an_input_can_come_to_require_grad_inside(way):
    x = way.tensor([1.0, 2.0])

    def require(x):
        x.requires_grad_()
        return x * 2

    got = way.compiled(require)(x)
    way.shows((x.requires_grad, got.requires_grad), (True, True), pytorch=(False, False))


@pytest.mark.rules("RT-5")
def test_what_was_written_before_set_stays_in_the_old_memory(way):
    """In PyTorch the old memory never sees the write."""
    x, y = way.arange(2, start=1), way.arange(2, start=10)
    old = x.view(2, 1)

    def swap(x, y):
        with way.lib.no_grad():
            x.mul_(2)
            x.set_(y * 3)

    call = way.compiled(swap)
    got = way.outcome(lambda: call(x, y))
    told = got, x.tolist(), old.tolist()
    way.shows(told, (None, [30, 33], [[2], [4]]), pytorch=(None, [30, 33], [[1], [2]]))


@pytest.mark.rules("FUN-18")
def test_resize_that_grows_the_memory(way):
    """PyTorch's epilogue has no memory to give the new geometry."""
    x = way.arange(2)

    def grow(x):
        x.resize_(4)
        x.fill_(7)
        return x * 2

    call = way.compiled(grow)
    got = way.outcome(lambda: call(x).tolist())
    way.shows((got, x.tolist()), ([14] * 4, [7] * 4), pytorch=("raises RuntimeError", [0, 1]))


@pytest.mark.rules("FUN-37")
def test_other_bytes_under_an_input_are_seen(way):
    """PyTorch loses that `data` is bound anew, and computes with the old bytes."""
    x = way.arange(3)

    def rebind(x):
        if way.is_ours:
            x.hidden_alias().copy_(x * 2)
        else:
            x.data = x.data * 2
        return x + 1

    got = way.compiled(rebind)(x).tolist()
    told = got, x.tolist(), way.version(x)
    way.shows(told, ([1, 3, 5], [0, 2, 4], 0), pytorch=([1, 2, 3], [0, 1, 2], 0))
