"""Embedding: rows, their gradients with padding and frequencies, norms, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from aotlite.ir.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
    UnsupportedError,
)
from tests.nn.helpers.compare import same

F = nn.functional
FEW = settings(max_examples=50)
ROWS, WIDTH = 5, 3

positions = st.lists(st.integers(0, ROWS - 1), max_size=8).map(lambda rows: np.array(rows, "int64"))
options = st.fixed_dictionaries(
    {},
    optional={
        "padding_idx": st.integers(-ROWS, ROWS - 1),
        "scale_grad_by_freq": st.booleans(),
        "max_norm": st.sampled_from([0.5, 1.5, 3.0]),
        "norm_type": st.sampled_from([1.0, 2.0, 3.0, math.inf]),
    },
)


def table(seed=0):
    return np.random.default_rng(seed).standard_normal((ROWS, WIDTH))


@FEW
@given(positions, options)
def test_rows_and_gradients_are_those_of_the_definition(rows, options):
    weight = al.tensor(table(), requires_grad=True)
    result = F.embedding(al.tensor(rows), weight, **options)
    assert result.tolist() == weight.detach().numpy()[rows].tolist()
    result.sum().backward()
    counts = np.bincount(rows, minlength=ROWS)
    expected = np.minimum(counts, 1) if options.get("scale_grad_by_freq") else counts
    if "padding_idx" in options:
        expected[options["padding_idx"]] = 0
    np.testing.assert_allclose(weight.grad.numpy(), expected[:, None] * np.ones(WIDTH), rtol=1e-15)


@FEW
@given(positions, st.sampled_from([1.0, 2.0, 3.0, math.inf]))
def test_only_taken_rows_are_shortened_to_the_norm(rows, norm_type):
    before = table() * 4
    weight = al.tensor(before)
    F.embedding(al.tensor(rows), weight, max_norm=1.0, norm_type=norm_type)
    taken = np.isin(np.arange(ROWS), rows)
    after = weight.numpy()
    assert after[~taken].tolist() == before[~taken].tolist()
    norms = np.linalg.norm(after[taken], norm_type, 1)
    assert (norms <= 1).all()
    np.testing.assert_allclose(norms, 1, rtol=1e-6)  # the margin against division by 0


@pytest.mark.torch
@FEW
@given(positions, options, st.booleans())
def test_embedding_is_pytorchs(torch, rows, options, square):
    rows = np.stack([rows, rows[::-1]]) if square else rows
    theirs = torch.nn.Embedding(ROWS, WIDTH, _weight=torch.tensor(table()), **options)
    ours = nn.Embedding(ROWS, WIDTH, _weight=al.tensor(table()), **options)
    assert repr(theirs) == repr(ours)
    expected, got = theirs(torch.tensor(rows)), ours(al.tensor(rows))
    same(expected, got)
    assert expected.stride() == got.stride()
    (expected**2).sum().backward(), (got**2).sum().backward()
    same(theirs.weight.grad, ours.weight.grad)
    same(theirs.weight, ours.weight)
    assert list(theirs.state_dict()) == list(ours.state_dict())


@FEW
@given(positions, options)
def test_compiled_embedding_is_eagers(rows, options):
    def world(function):
        layer = nn.Embedding(ROWS, WIDTH, _weight=al.tensor(table()), **options)
        for seed in (0, 1):
            result = function(layer, al.tensor(np.random.default_rng(seed).permutation(rows)))
            (result * result).sum().backward()
        return layer.weight.tolist(), layer.weight.grad.tolist(), layer.weight.version

    call = al.compile(lambda layer, rows: layer(rows))
    assert world(lambda layer, rows: layer(rows)) == world(call)
    assert len(call.entries) == 1


def test_a_table_starts_standard_normal_with_a_padding_row_of_zeros():
    al.manual_seed(0)
    layer = nn.Embedding(2000, 10, padding_idx=-1)
    values = layer.weight.detach().numpy()
    assert set(values[-1]) == {0.0}
    assert values[:-1].mean() == pytest.approx(0, abs=0.02)
    assert values[:-1].std() == pytest.approx(1, abs=0.02)
    assert (abs(values[:-1]) < 2).mean() == pytest.approx(math.erf(math.sqrt(2)), abs=0.01)
    assert (abs(values) < 6).all()


def test_a_table_may_be_given_and_frozen():
    given_ = al.tensor(table())
    layer = nn.Embedding.from_pretrained(given_, padding_idx=1)
    assert not layer.weight.requires_grad
    assert layer(al.tensor(1)).tolist() == table()[1].tolist()
    assert layer.weight.storage is given_.storage
    assert nn.Embedding.from_pretrained(given_, freeze=False).weight.requires_grad


def test_indices_may_be_int32_and_of_any_shape():
    weight = al.tensor(table())
    for shape in ((), (2,), (2, 1, 3), (0, 2)):
        rows = al.zeros(shape, dtype=al.int32)
        assert F.embedding(rows, weight).shape == (*shape, WIDTH)


def test_embedding_refuses_what_does_not_fit():
    weight = al.tensor(table())
    with pytest.raises(IndexOutOfRangeError, match="embedding: an index is 5, expected 0 <= index"):
        F.embedding(al.tensor([1, 5]), weight)
    with pytest.raises(IndexOutOfRangeError, match="embedding: an index is -1, expected 0 <= inde"):
        F.embedding(al.tensor([-1]), weight)
    with pytest.raises(DTypeError, match="embedding: the index has dtype float32, expected int64"):
        F.embedding(al.ones(2), weight)
    with pytest.raises(ShapeError, match=r"embedding: argument 'weight' has shape \(3,\), expecte"):
        F.embedding(al.tensor([0]), al.ones(3))
    with pytest.raises(ShapeError, match=r"embedding: argument 'weight' has shape \(3,\), ex"):
        F.embedding(al.tensor([0]), al.ones(3), max_norm=1.0)
    with pytest.raises(ArgumentError, match="embedding: padding_idx is 5, expected a row: at leas"):
        F.embedding(al.tensor([0]), weight, padding_idx=5)
    with pytest.raises(ArgumentError, match="Embedding: padding_idx is -6, expected .* and below"):
        nn.Embedding(ROWS, WIDTH, padding_idx=-6)
    with pytest.raises(ArgumentError, match="embedding: norm_type is 0, expected a number above 0"):
        F.embedding(al.tensor([0]), weight, max_norm=1.0, norm_type=0)
    with pytest.raises(UnsupportedError, match="embedding: sparse is True, expected False: gradie"):
        F.embedding(al.tensor([0]), weight, sparse=True)
    with pytest.raises(UnsupportedError, match="Embedding: sparse is True, expected False"):
        nn.Embedding(2, 3, sparse=True)
    with pytest.raises(ShapeError, match=r"Embedding: the weight has shape \(5, 3\), expected \(4"):
        nn.Embedding(4, 3, _weight=weight)
    with pytest.raises(ShapeError, match=r"Embedding: the embeddings have shape \(3,\), expected"):
        nn.Embedding.from_pretrained(al.ones(3))


def test_nothing_is_written_where_an_index_is_refused():
    weight = al.tensor(table() * 4)
    with pytest.raises(IndexOutOfRangeError):
        F.embedding(al.tensor([0, 5]), weight, max_norm=1.0)
    assert weight.tolist() == (table() * 4).tolist()
    assert weight.version == 0
