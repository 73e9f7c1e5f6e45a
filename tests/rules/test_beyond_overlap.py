"""Flaws of PyTorch where arguments overlap, each by its smallest program (ALI, SYN, GRD)."""

import pytest


def write_first(x, y):
    x.mul_(2)
    return x + y


@pytest.mark.rules("DUP-5", "GRD-2", "GEN-13")
def test_distinct_tensors_then_one_twice(way):
    """#139789."""
    call = way.compiled(write_first)
    call(way.arange(2), way.arange(2))
    a = way.arange(2, start=1)
    told = call(a, a).tolist(), a.tolist()
    way.shows(told, ([4, 8], [2, 4]), pytorch=([3, 6], [2, 4]))


@pytest.mark.rules("DUP-5", "GRD-2", "GEN-13")
def test_distinct_tensors_then_two_that_overlap(way):
    """#139789."""
    call = way.compiled(write_first)
    call(way.arange(4), way.arange(4))
    a = way.arange(6, start=1)
    got = call(a[:4], a[2:]).tolist()
    here = [8, 12, 11, 14], [2, 4, 6, 8, 5, 6]
    way.shows((got, a.tolist()), here, pytorch=([5, 8, 11, 14], here[1]))


@pytest.mark.rules("ALI-4")
def test_an_overlap_that_starts_in_a_later_row_is_seen(way):
    """A27."""
    b = way.arange(4, 10)

    def add(x, y):
        x.mul_(2)
        return y * 1

    got = way.compiled(add)(b[:, :5], b[1:, 1:4])
    here = [[22, 24, 26], [42, 44, 46], [62, 64, 66]]
    way.shows(got.tolist(), here, pytorch=[[11, 12, 13], [21, 22, 23], [31, 32, 33]])


@pytest.mark.rules("ALI-5", "SYN-6")
def test_inputs_of_two_dtypes_overlap_by_their_bytes(way):
    """PyTorch compares numbers of elements, and reads what was there before."""
    b = way.lib.zeros(2, dtype=way.lib.float32)

    def write(x, y):
        x.fill_(1.0)
        return y * 1

    got = way.compiled(write)(b, b.view(way.lib.int8)[4:8])
    way.shows(got.tolist(), [0, 0, -128, 63], pytorch=[0, 0, 0, 0])


@pytest.mark.rules("ALI-6", "SYN-6")
def test_only_inputs_that_overlap_are_taken_together(way):
    """In PyTorch the third, a leaf of its own on the same memory, is in the way."""
    memory = way.arange(60)
    third = memory[50:].detach().requires_grad_()

    def write(x, y, z):
        with way.lib.no_grad():
            x.mul_(2)
        return y * 1, z.sum()

    call = way.compiled(write)
    got = way.outcome(lambda: [o.tolist() for o in call(memory[:3], memory[2:5], third)])
    way.shows(got, [[4, 3, 4], 545], pytorch="raises AssertionError")


@pytest.mark.rules("SYN-6")
def test_two_leaves_over_one_memory_written_under_no_grad(way):
    memory = way.tensor([1.0, 2.0, 3.0])
    first, second = memory[:2].detach().requires_grad_(), memory[1:].detach().requires_grad_()

    def step(x, y):
        with way.lib.no_grad():
            x.mul_(10)
        return (x * y).sum()

    call = way.compiled(step)
    got = way.outcome(lambda: call(first, second).backward())
    grads = [None if x.grad is None else x.grad.tolist() for x in (first, second)]
    here = None, [10, 20, 3], [[20, 3], [10, 20]]
    pytorch = "raises AssertionError", [1, 2, 3], [None, None]
    way.shows((got, memory.tolist(), grads), here, pytorch=pytorch)


@pytest.mark.rules("SYN-7")
def test_a_leaf_and_its_view_written_under_no_grad(way):
    """PyTorch ends with an assertion of its own."""
    x = way.leaf([1.0, 2.0])

    def write(x, v):
        with way.lib.no_grad():
            v.mul_(3)
        return (x * x).sum()

    call = way.compiled(write)
    got = way.outcome(lambda: call(x, x.view(2)).backward())
    told = got, x.tolist(), None if x.grad is None else x.grad.tolist(), x.is_leaf
    here = None, [3, 6], [6, 12], True
    way.shows(told, here, pytorch=("raises AssertionError", [1, 2], None, True))


@pytest.mark.rules("SYN-7")
def test_a_member_that_is_only_read_makes_no_write_visible(way):
    """In PyTorch the write under no_grad becomes a differentiable copy, and `b` loses its past."""
    start = way.leaf([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    b = start * 1

    def write(x, y):
        v = x[0]
        with way.lib.no_grad():
            y.mul_(3)
        return v

    way.compiled(write)(b, b.view(3, 2))
    b.sum().backward()
    numbers = [3, 6, 9, 12, 15, 18]
    way.shows((b.tolist(), start.grad.tolist()), (numbers, [1] * 6), pytorch=(numbers, [0] * 6))


@pytest.mark.rules("SYN-7", "META-16")
def test_two_members_that_are_written_have_one_tangent(way):
    start = way.leaf([1.0, 2.0])
    b = start * 1

    def write(x, y):
        x.add_(1)
        y.mul_(2)
        return x + 1

    call = way.compiled(write)

    def run():
        (call(b, b.view(2, 1)).sum() + b.sum()).backward()
        return b.tolist(), start.grad.tolist()

    way.shows(way.outcome(run), ([4, 6], [4, 4]), pytorch="raises AssertionError")


@pytest.mark.rules("SYN-9")
@pytest.mark.parametrize("rank, pytorch", [(1, [100]), (2, "raises AssertionError")])
def test_a_view_of_one_of_two_that_overlap_is_taken_of_that_one(way, rank, pytorch):
    """#198095: PyTorch takes it of their base. A18."""
    a = way.arange(4) if rank == 1 else way.arange(4, 2)

    def look(a, b):
        a.add_(100)
        return b[:1] if rank == 1 else b[0]

    call = way.compiled(look)
    got = way.outcome(lambda: call(a, a[1:]).tolist())
    way.shows(got, [101] if rank == 1 else [102, 103], pytorch=pytorch)


@pytest.mark.rules("META-14")
def test_a_returned_argument_that_overlaps_another_is_itself(way):
    a = way.arange(4)

    def write(a, b):
        b.mul_(2)
        return b

    b = a[1:]
    got = way.compiled(write)(a, b)
    way.shows((got is b, a.tolist()), (True, [0, 2, 4, 6]), pytorch=(False, [0, 2, 4, 6]))


@pytest.mark.rules("SYN-1", "SYN-4")
def test_a_view_and_its_base_are_one_value_with_one_gradient(way):
    """A10: what is written is seen through the other, and differentiated through it."""
    start = way.leaf([1.0, 2.0])
    b = start * 1

    def write(a, b):
        a.mul_(2)
        return a + b

    got = way.compiled(write)(b.view(2), b)
    got.sum().backward()
    assert ([4, 8], [2, 4], [4, 4]) == (got.tolist(), b.tolist(), start.grad.tolist())


@pytest.mark.rules("SYN-11", "FUN-23")
def test_a_write_of_one_of_two_that_overlap_counts_once(way):
    """PyTorch writes their whole base, and counts that too."""
    a = way.arange(10)
    x, y, beside = a[:5], a[1:6], a[8:]
    before = way.version(a)

    def write(x, y):
        x.mul_(2)
        return y + 1

    way.compiled(write)(x, y)
    told = way.version(beside) - before, a.tolist()
    numbers = [0, 2, 4, 6, 8, 5, 6, 7, 8, 9]
    way.shows(told, (1, numbers), pytorch=(2, numbers))
