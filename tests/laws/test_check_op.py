"""`check_op`: an own op through the laws, on samples given or made from its schema."""

import subprocess
import sys

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.testing import laws
from aotlite.testing.laws.samples.generated import samples_for
from aotlite.testing.laws.samples.variants import VARIANTS
from tests.helpers.own_ops import softclip, taken_out


@pytest.fixture
def register():
    with taken_out():
        yield al.register_op


def broken_by(law, *args, **options):
    with pytest.raises(laws.LawError) as caught:
        laws.check_op(*args, **options)
    assert law == caught.value.law
    return caught.value


# -------------------------------------------------------------------------------------- samples
@pytest.mark.thinned(6)
@pytest.mark.parametrize(
    "name",
    "add exp sum matmul where gather cat t_ mul_ unbind rand nonzero diagonal sort".split(),
)
def test_ops_of_the_table_obey_their_laws_on_samples_made_from_their_schemas(name):
    found = laws.check_op(name)
    assert tuple(law.name for law in laws.of(name)) == found.laws
    assert found.cases >= 3


def test_samples_have_each_layout_and_several_dtypes():
    arrays = [sample.args[0] for sample in samples_for(OPS["add"])]
    assert {"float64", "float32", "int64", "bool"} == {str(a.dtype) for a in arrays}
    shapes = {a.shape for a in arrays}
    assert {(), (2, 3), (1, 1), (0, 3), (2, 0), (3, 3), (2, 2, 1, 2)} < shapes
    steps = {tuple(s // a.itemsize for s in a.strides) for a in arrays if a.shape == (2, 3)}
    assert {(3, 1), (1, 2), (6, 2), (0, 1)} <= steps  # dense, transposed, gapped, expanded
    sizes = [sum(a.size for a in sample.args[:2]) for sample in samples_for(OPS["add"])]
    assert sorted(sizes) == sizes


def test_what_may_not_be_written_is_no_sample_of_an_op_that_writes():
    arrays = [sample.args[0] for sample in samples_for(OPS["mul_"])]
    assert arrays
    assert not any(a.size and 0 in a.strides for a in arrays)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "permute",
            "laws: parameter 'dims' of permute(Tensor(a) self, int[] dims) -> Tensor(a) is",
        ),
        ("bmm", "laws: bmm takes none of 539 calls that bmm(Tensor self, Tensor mat2) -> Tensor s"),
        ("getitem", "laws: getitem has no laws of its own, expected another op"),
        ("nonsense", "laws: the op is 'nonsense', expected an op, or the name of one"),
        ("linear", "laws: the op is 'linear', expected an op, or the name of one"),
        (3, "laws: the op is 3, expected an op, or the name of one"),
    ],
)
def test_an_op_of_which_the_schema_says_too_little_needs_samples(name, text):
    with pytest.raises(al.ArgumentError) as caught:
        laws.check_op(name)
    assert str(caught.value).startswith(text)
    if "parameter" in text:
        assert "give samples: laws.check_op(op, samples=[laws.Sample((array, 1)" in str(
            caught.value.__notes__
        )


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([], "laws: there are no samples for exp, expected at least one"),
        (
            [np.ones(3)],
            "laws: a sample is array([1., 1., 1.]), expected a Sample or a tuple of arg",
        ),
        ([(np.ones(3),)], "laws: none of 1 samples of exp is smooth, expected one: it has a grad"),
    ],
)
def test_samples_that_show_nothing_are_refused(samples, text):
    with pytest.raises(al.ArgumentError) as caught:
        laws.check_op("exp", samples)
    assert str(caught.value).startswith(text)


def test_no_laws_are_refused():
    with pytest.raises(al.ArgumentError, match="^laws: there are no laws for exp, expected at lea"):
        laws.check_op("exp", laws=[])


def test_a_law_that_says_nothing_of_the_op_is_refused():
    with pytest.raises(
        al.ArgumentError, match="^laws: 'L4' is no law for exp, expected L1, L2, L3"
    ):
        laws.check_op("exp", laws=["L4"])


def test_every_op_with_generated_samples_takes_variants_of_layouts():
    assert {"transposed", "gapped", "empty", "0-d"} < set(VARIANTS)


# -------------------------------------------------------------------------------------- own ops
def test_an_own_op_obeys_its_laws_and_so_does_its_form_in_place(register):
    op = softclip(register)
    assert ("L1", "L2", "L3", "L6", "L7", "L8", "L9", "L12") == laws.check_op(op).laws
    assert "L5" in laws.check_op("my_softclip_").laws


def test_a_wrong_gradient_names_law_op_and_smallest_sample(register):
    op = softclip(register, vjp={"self": lambda grad, self: grad * self.tanh()})
    error = broken_by("L2", op)
    first = str(error).splitlines()[0]
    assert first.startswith(
        "L2 (vjp = finite differences, second order too): my_softclip(float64[][], 1.0): the "
        "gradient of operand 0 is "
    )
    assert "the sample: (np.array(" in error.report
    assert error.case.smooth


def test_a_kernel_that_raises_names_the_sample(register):
    op = register(
        "my_max(Tensor self) -> Tensor",
        meta=lambda self: tensor_meta(self.shape[:1], None, self.dtype, self.device),
        kernel=lambda xp, meta, a: xp.max(a, axis=1),
        vjp=None,
    )
    error = broken_by("L1", op)
    assert str(error).startswith("L1 (meta = kernel): my_max(float32[0][0]) raises: AxisError(")
    assert "the sample: (np.array([], 'float32'))" in error.report


def test_a_wrong_meta_rule_is_found_on_the_sample_that_shows_it(register):
    op = register(
        "my_turned(Tensor self) -> Tensor",
        meta=lambda self: tensor_meta(
            self.shape, None, al.float64 if len(self.shape) == 3 else self.dtype, self.device
        ),
        kernel=lambda xp, meta, a: xp.negative(a),
        vjp=None,
        cost="indexing",
    )
    samples = [(np.ones(shape, np.float32),) for shape in ((2, 3, 4), (2, 3, 1), (3,))]
    error = broken_by("L1", op, samples)
    assert "my_turned(float32[2, 3, 1][3, 1, 1])" in str(error)


def test_a_sample_of_plain_arguments_and_laws_by_name(register):
    op = softclip(register)
    found = laws.check_op(op, samples=[(np.ones(3), 2.0)], laws=["L1", laws.LAWS[2]])
    assert "my_softclip obeys L1, L3 on 1 cases" == str(found)


def test_a_law_error_is_an_assertion_and_one_of_ours():
    assert issubclass(laws.LawError, AssertionError)
    assert issubclass(laws.LawError, al.AotliteError)


def test_a_python_without_assertions_is_refused():
    """Every law of ops would hold there."""
    program = "from aotlite.testing import laws\nlaws.check_op('exp')"
    done = subprocess.run(
        [sys.executable, "-O", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "UnsupportedError: laws: Python runs with -O, which drops assertions" in done.stderr
