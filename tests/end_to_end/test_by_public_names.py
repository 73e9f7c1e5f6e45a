"""Faults that were seen from outside, in their smallest form and by public names alone."""

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aotlite as al
from aotlite.subclasses import TwoTensor


def test_what_an_ndarray_calls_otherwise_is_refused():
    """`std` of an ndarray divides by n, of a tensor by n - 1."""
    compiled = al.compile(lambda a: a.std())
    with pytest.raises(al.UnsupportedError):
        compiled(np.array([1.0, 2.0, 4.0]))


def test_rows_of_an_expanded_tensor_need_no_copy_of_it():
    """A copy would be of 4 TiB."""
    rows = al.ones(1, 1).expand(2**40, 1)
    assert [[1.0]] == rows.index_select(0, al.tensor([2**39])).tolist()


def test_stages_of_either_list_can_be_replaced():
    calls = []

    def stopping(*args, **options):
        calls.append(args)
        raise LookupError("it was asked")

    compiled = al.compile(lambda x: x * 2.0, stages={"desugar": stopping})
    with pytest.raises(LookupError, match="it was asked"):
        compiled(TwoTensor(al.ones(2), al.ones(2)))
    assert 1 == len(calls)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs a list of mappings")
def test_libraries_of_functions_that_are_gone_are_unloaded():
    def mappings():
        return Path("/proc/self/maps").read_text("utf-8").count("\n")

    def run(number):
        al.compile(lambda x: x.sin() * float(number), backend="cpu")(al.ones(4))
        gc.collect()

    run(0)
    before = mappings()
    for number in range(1, 17):
        run(number)
    assert before + 16 > mappings()


def test_the_program_says_its_version():
    done = subprocess.run(
        [sys.executable, "-m", "aotlite", "--version"], capture_output=True, text=True, check=False
    )
    assert (0, f"aotlite {al.__version__}") == (done.returncode, done.stdout.strip())
