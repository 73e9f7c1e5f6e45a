"""The fixture `lib`: aotlite, and PyTorch where it is installed."""

import pytest

import aotlite as al


@pytest.fixture(params=["aotlite", pytest.param("torch", marks=pytest.mark.torch)])
def lib(request):
    """What a test that takes this states holds for both."""
    return al if request.param == "aotlite" else request.getfixturevalue("torch")
