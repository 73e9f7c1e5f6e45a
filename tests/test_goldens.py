"""The README's example, stage by stage, is as in `tests/goldens`; wrong stages name themselves.

`pytest --update-goldens` rewrites the goldens.
"""

import doctest
import linecache
import re
from pathlib import Path

import pytest

import aotlite as al
from aotlite.inspect import stages_of
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.text.source import graph_from_source
from aotlite.ir.run.transform import Transformer

ROOT = Path(__file__).parents[1]
GOLDENS = ROOT / "tests" / "goldens"
FILE = "<README.md>"


@pytest.fixture(scope="module")
def readme_loss():
    """The function that the README's example defines, whose source lines can be read."""
    examples = doctest.DocTestParser().get_examples((ROOT / "README.md").read_text("utf-8"))
    (source,) = [e.source for e in examples if e.source.startswith("def loss")]
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    scope = {"al": al}
    exec(compile(source, FILE, "exec"), scope)
    yield scope["loss"]
    del linecache.cache[FILE]


def arguments():
    return al.ones(4, 3), al.ones(3, 2).requires_grad_()


def dumped(folder):
    """Text of each dumped file by its name without the number of the compilation."""
    # The number has more digits once a process has compiled 10,000 functions.
    paths = sorted(folder.iterdir())
    return {path.stem.partition("_")[2]: path.read_text("utf-8") for path in paths}


@pytest.fixture
def dump(readme_loss, tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_DUMP", str(tmp_path))
    al.compile(readme_loss)(*arguments())
    return dumped(tmp_path)


def test_environment_variable_dumps_the_goldens(dump, pytestconfig):
    if pytestconfig.getoption("--update-goldens"):
        for path in GOLDENS.glob("loss_*.txt"):
            path.unlink()
        for name, text in dump.items():
            (GOLDENS / f"{name}.txt").write_text(text, "utf-8")
    goldens = {path.stem: path.read_text("utf-8") for path in sorted(GOLDENS.glob("loss_*.txt"))}
    assert list(goldens) == list(dump)
    for name, text in dump.items():
        assert goldens[name] == text


def test_every_stage_of_the_readme_has_a_golden(readme_loss):
    """A dump that forgets a stage would agree with goldens made of it."""
    headers = {text.split(":")[0][2:] for text in map(Path.read_text, GOLDENS.glob("loss_*.txt"))}
    assert set(stages_of(readme_loss, *arguments()).names) == headers


@pytest.mark.rules("FUN-35")
def test_goldens_show_the_readers_source_lines():
    text = (GOLDENS / "loss_1_capture.txt").read_text("utf-8")
    assert "    # <README.md>:2 in loss: x[0].mul_(2.0)\n" in text


# -------------------------------------------------------------------------- planted mistakes
class Worsened(Transformer):
    """Replaces relu by exp."""

    def call(self, target, args):
        if target.name == "relu":
            return args[0].exp()
        return super().call(target, args)


def worsen(graph):
    return Worsened(graph).transform()


def check_inputs_untouched(compiled, expected):
    x, w = arguments()
    with pytest.raises(al.AotliteError, match=re.escape(expected)) as caught:
        compiled(x, w)
    assert al.ones(4, 3).tolist() == x.tolist() and 0 == x._version
    return caught.value


def test_verify_names_a_wrong_pass(readme_loss):
    def fine(graph):
        return graph

    compiled = al.compile(readme_loss, verify=True, passes=[fine, worsen, fine])
    error = check_inputs_untouched(compiled, "verify: pass 'worsen' changed the value of output_0")
    assert str(error).endswith("expected what pass 'fine' gives")


WRONG_STAGES = {
    "functionalize": "verify: 6 functionalize changed the value of output_0, expected what 4 joint",
    "simplify": "verify: 7 simplify changed the value of output_0, expected what 6 functionalize",
    "partition": "verify: 8 partition changed the value of output_0, expected what 7 simplify",
}


@pytest.mark.parametrize("stage", WRONG_STAGES)
def test_verify_names_a_wrong_stage(stage, readme_loss):
    from aotlite.pipeline import STAGES

    def wrong(graph):
        return STAGES[stage](worsen(graph))

    if stage == "functionalize":  # its input is not pure, so what is worsened is its result

        def wrong(graph):
            return worsen(STAGES[stage](graph))

    compiled = al.compile(readme_loss, verify=True, stages={stage: wrong})
    check_inputs_untouched(compiled, WRONG_STAGES[stage])


def test_verify_accepts_a_right_pass(readme_loss):
    compiled = al.compile(readme_loss, verify=True, passes=[lambda graph: graph])
    assert 126.0 == compiled(*arguments()).item()


@pytest.mark.parametrize("text", ["code", "readable"])
def test_a_pass_may_read_back_the_text_of_a_joint_graph(text, readme_loss):
    """The text says what belongs to the backward, which the partition must know."""

    def reread(graph):
        again = graph_from_source(graph.code if text == "code" else str(graph))
        assert structurally_equal(graph, again) is None
        return again

    (x, w), (y, v) = arguments(), arguments()
    readme_loss(x, w).backward()
    al.compile(readme_loss, verify=True, passes=[reread])(y, v).backward()
    assert w.grad.tolist() == v.grad.tolist()


def test_without_verify_a_wrong_pass_is_believed(readme_loss):
    """What the tests above see is found by running the graphs, not by their form."""
    x, w = arguments()
    assert 126.0 != al.compile(readme_loss, verify=False, passes=[worsen])(x, w).item()
