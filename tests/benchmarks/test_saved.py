"""The benchmark of saved values: its programs are right, and its figures are those of graphs."""

import json

import pytest

import aotlite as al
from aotlite.eager.subclass.protocol import inner_tensors, is_wrapper
from benchmarks import saved
from benchmarks.saved import Counts, counts
from benchmarks.training_programs import PROGRAMS, TrainingProgram, data, two, weight


def lists(value):
    """The numbers of a result or gradient as lists; those of all parts of a wrapper."""
    if isinstance(value, (tuple, list)):
        return [lists(each) for each in value]
    if value is None:
        return None
    if is_wrapper(value):
        return {name: lists(part) for name, part in inner_tensors(value).items()}
    return value.tolist()


def trained(of, function):
    """Results, gradients and arguments afterwards."""
    args = of.arguments()
    results = function(*args)
    listed = results if isinstance(results, (tuple, list)) else [results]
    al.autograd.backward(listed, [al.ones_like(each) for each in listed])
    return lists([listed, [arg.grad for arg in args], args])


def test_there_are_twenty_programs():
    assert 20 == len(PROGRAMS)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("partition", saved.PARTITIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_program_equals_eager(name, partition):
    of = PROGRAMS[name]
    compiled = al.compile(of.body, backend="reference", partition=partition, verify=2)
    assert trained(of, of.body) == trained(of, compiled)


def hooked(pair):
    """All inputs of a function of wrappers are saved if user code runs in the backward."""
    exp = pair.exp()
    exp.register_hook(lambda grad: grad * 3)
    return exp * 2


def test_a_saved_value_that_the_backward_does_not_read_is_counted():
    of = TrainingProgram(lambda x, w: (x @ w).exp(), (weight(2, 3), data(3, 4)))
    assert Counts(0, 2, 0, 2, 3) == counts(of, "default")
    of = TrainingProgram(hooked, (two(4),))
    assert Counts(32, 4, 2, 4, 6) == counts(of, "default")


def test_the_command_prints_what_the_comparison_reads(capsys):
    saved.main(["default", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert 20 * 5 == len(found)
    assert counts(PROGRAMS["chain"], "default").backward_ops == found["chain default: backward ops"]
