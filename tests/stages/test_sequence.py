"""Sequence numbers: which forward op each node belongs to. SEQ-1, SEQ-3."""

import pytest

import aotlite as al
from aotlite.ir.graph import Phase


def loss(x, w):
    y = (x.t() @ w).sin()
    with al.no_grad():
        w2 = w * 2.0
    return (y * w2).sum()


def numbers(graph, phase):
    return [(n.target.name, n.sequence) for n in graph.calls if n.phase is phase]


def joint_of(function, *args):
    found = {}
    compiled = al.compile(function, observer=lambda name, made: found.setdefault(name, made))
    compiled(*args)
    return found["4 joint"]


@pytest.mark.rules("SEQ-1")
def test_an_op_without_a_tape_node_shares_the_number_of_the_next():
    x, w = al.ones(2, 2), al.ones(2, 4, requires_grad=True)
    graph = joint_of(loss, x, w)
    forward = numbers(graph, Phase.FORWARD)
    assert [("t", 0), ("matmul", 0), ("sin", 1), ("mul", 2), ("mul", 2), ("sum", 3)] == forward[:6]


@pytest.mark.rules("SEQ-1")
def test_backward_nodes_carry_the_number_of_the_op_they_differentiate():
    x, w = al.ones(2, 2), al.ones(2, 4, requires_grad=True)
    backward = [number for _, number in numbers(joint_of(loss, x, w), Phase.BACKWARD)]
    assert backward == sorted(backward, reverse=True)
    assert {0, 1, 2, 3} == set(backward)


@pytest.mark.rules("SEQ-3")
def test_numbers_do_not_depend_on_what_ran_before():
    x, w = al.ones(2, 2), al.ones(2, 4, requires_grad=True)
    first = joint_of(loss, x, w)
    (w.exp() * w).sum().backward()
    again = joint_of(loss, x, w)
    assert [n.sequence for n in first.calls] == [n.sequence for n in again.calls]


@pytest.mark.rules("SEQ-1")
def test_numbers_survive_to_the_partitioned_graphs():
    x, w = al.ones(2, 2), al.ones(2, 4, requires_grad=True)
    compiled = al.compile(loss)
    compiled(x, w)
    assert ("sin", 1) in numbers(compiled.forward_graph, Phase.FORWARD)
    assert ("cos", 1) in numbers(compiled.backward_graph, Phase.BACKWARD)
