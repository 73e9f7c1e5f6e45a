"""The handwritten digits that the demonstration trains on.

`README.md` beside this file names their source and license.
"""

from importlib import resources

import attrs
import numpy as np

__all__ = ["Digits", "load_digits"]

TEST_STRIDE = 5


@attrs.frozen(kw_only=True, eq=False)
class Digits:
    """Images as float32 (n, 1, 8, 8) in [0, 1], labels as int64 (n,) in 0..9."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load_digits() -> Digits:
    """The 1,797 digits, of each class every fifth as a test image.

    The split is fixed and stratified: it counts within a class in the file's order (images 4, 9,
    14, ... are tested) and depends on no random generator. The arrays are new at each call and
    may be written.

    >>> digits = load_digits()
    >>> digits.train_images.shape, digits.test_images.shape
    ((1442, 1, 8, 8), (355, 1, 8, 8))
    """
    with resources.files(__name__).joinpath("digits.npz").open("rb") as file:
        archive = np.load(file)
        images, labels = archive["images"], archive["labels"]
    # Division by 16 is exact: every pixel is a multiple of 1/16.
    pixels = images[:, np.newaxis].astype(np.float32) / np.float32(16)
    classes = labels.astype(np.int64)
    tested = _rank_in_class(classes) % TEST_STRIDE == TEST_STRIDE - 1
    return Digits(
        train_images=pixels[~tested],
        train_labels=classes[~tested],
        test_images=pixels[tested],
        test_labels=classes[tested],
    )


def _rank_in_class(classes: np.ndarray) -> np.ndarray:
    """For each label, how many equal labels come before it: (n,) -> (n,)."""
    ranks = np.empty(classes.size, np.int64)
    for label in np.unique(classes):
        members = np.flatnonzero(classes == label)
        ranks[members] = np.arange(members.size)
    return ranks
