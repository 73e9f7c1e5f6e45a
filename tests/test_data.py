"""The digits: counts, range, and a split that is stratified and never changes."""

import hashlib

import numpy as np
import pytest

from aotlite.data import load_digits


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def test_digits_are_complete_and_each_image_is_in_one_part(digits):
    images = np.concatenate([digits.train_images, digits.test_images])
    assert (1797, 1, 8, 8) == images.shape
    assert 1797 == len({image.tobytes() for image in images})


def test_digits_are_float32_in_the_unit_interval_with_int64_labels(digits):
    for images in (digits.train_images, digits.test_images):
        assert np.float32 == images.dtype
        assert (0.0, 1.0) == (images.min(), images.max())
        np.testing.assert_array_equal(np.round(images * 16), images * 16)
    assert {np.dtype(np.int64)} == {digits.train_labels.dtype, digits.test_labels.dtype}


def test_digits_split_takes_a_fifth_of_every_class(digits):
    """The class sizes are those that the repository's own description lists."""
    train, test = np.bincount(digits.train_labels), np.bincount(digits.test_labels)
    assert [178, 182, 177, 183, 181, 182, 181, 179, 174, 180] == (train + test).tolist()
    assert ((train + test) // 5).tolist() == test.tolist()


def test_digits_split_never_changes(digits):
    """A different split would make accuracies of two versions incomparable without a word."""
    parts = (digits.train_images, digits.train_labels, digits.test_images, digits.test_labels)
    little_endian = (part.astype(part.dtype.newbyteorder("<")).tobytes() for part in parts)
    digest = hashlib.sha256(b"".join(little_endian)).hexdigest()
    assert "4e1325d038813314ead2a30970b4ad8eed6ef36a845f57a2129b3ece33899fd1" == digest


def test_digits_are_new_arrays_at_each_call(digits):
    other = load_digits()
    assert not np.shares_memory(digits.train_images, other.train_images)
    other.train_images[:] = 0
    assert 1.0 == digits.train_images.max()
