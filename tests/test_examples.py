"""The examples run as a reader would run them, are short, and do what they claim."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import aotlite as al
from aotlite.inspect import saved_bytes, stages_of
from aotlite.ir.graph import Phase

FOLDER = Path(__file__).parents[1] / "examples"
PATHS = sorted(FOLDER.glob("*.py"))


def example(name):
    """An example as a module, without what it does when it is run."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHOWN = {
    "checkpointed_training": [
        "kept for the backward: 122880 bytes; with checkpoints: 12304 bytes",
        "equal losses: True - falling: True",
    ],
    "maml": [
        "losses of eager and of a compiled loss agree: True",
        "losses of eager and of compiled steps agree: True",
        "after adaptation the loss has halved: True",
    ],
    "own_backend": [
        "    matmul = primals_0 @ primals_1",
        "def run(saved_primals_0, saved_tanh, tangents_output_0):  # loss_backward",
    ],
    "own_partitioner": [
        "default partitioner: 20480 bytes saved",
        "own partitioner: 4096 bytes saved",
        "equal gradients: True",
    ],
    "own_effect": [
        "hidden -0.25\nits gradient",
        "the same, compiled: True",
        "loss_backward make_token with_effect_record sink_tokens",
    ],
    "own_pass": [
        "forward  with it:          tanh add sum",
        "equal values: True - equal gradients: True",
    ],
    "physics_informed": [
        "losses of eager and of a compiled network agree: True",
        "losses of eager and of compiled steps agree: True",
        "after 1500 steps, within 0.05 of the sine: True",
    ],
    "sharded_training": [
        "weights of 64 bits: losses [95.0, 3301.927978515625], {'all_reduce': 4, 'all_gather': 3}",
        "weights of 8 bits: losses [95.0, 3325.31640625], {'all_reduce': 4, 'all_gather': 3}",
        "  equal to one rank's: True - compiled: True",
    ],
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_example_runs_and_shows_what_it_claims(path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    for line in SHOWN[path.stem]:
        assert line in done.stdout


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_example_has_under_75_lines(path):
    assert len(path.read_text("utf-8").splitlines()) < 75


def test_each_claim_is_of_an_example_that_there_is():
    """Else the tests above would pass over what was moved away."""
    assert sorted(SHOWN) == [path.stem for path in PATHS]


def test_own_pass_leaves_other_products_alone():
    module = example("own_pass")

    def function(x):
        return x * 2.0 * 3.0 * True * x

    before = stages_of(function, al.ones(2))["simplify"]
    after = module.add_instead_of_doubling(before)
    assert ["mul", "mul", "mul", "mul"] == module.op_names(before)
    assert ["add", "mul", "mul", "mul"] == module.op_names(after)


def program(x, w):
    """Views, writes, several results and a split: what a partitioner meets."""
    x[0].mul_(2.0)
    first, second = (x @ w).tanh().split(1, 1)
    second = second + 1
    second.mul_(first)
    return first.sum(), (second * first).sigmoid()


def gradient(**options):
    x = al.from_numpy(al.arange(12).numpy().reshape(4, 3) / 16)
    w = al.full((3, 2), 0.25, dtype=al.float64).requires_grad_()
    compiled = al.compile(program, **options)
    total, rest = compiled(x, w)
    (total + rest.sum()).backward()
    return w.grad.tolist(), compiled.partition


def test_own_partitioner_saves_nothing_pointwise_and_keeps_gradients():
    partitioner = example("own_partitioner").recompute_what_is_cheap
    expected, default = gradient()
    found, own = gradient(partition=partitioner, verify=True)
    assert expected == found
    assert saved_bytes(own) < saved_bytes(default)
    assert {"it is an input", "a contraction is expensive to recompute"} >= {
        value.reason for value in own.saved if value.name != "select_scatter"
    }
    assert any(node.phase is Phase.FORWARD for node in own.backward.calls)


def test_own_backend_names_an_op_it_lacks(capsys):
    with pytest.raises(al.UnsupportedError) as caught:
        al.compile(lambda x: x.exp(), backend=example("own_backend").numpy_text)(al.ones(2))
    assert "numpy_text: the op is exp, expected another" == str(caught.value)
    assert ["raised by backend 'numpy_text' on graph <lambda>"] == caught.value.__notes__
