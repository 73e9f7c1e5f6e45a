"""The fixture `way`: here and in PyTorch (where it is installed), eager and compiled."""

import pytest

import aotlite as al
from tests.rules.helpers.ways import Way

WAYS = ["eager", "compiled"]
PYTORCHS = [pytest.param(f"pytorch {way}", marks=pytest.mark.torch) for way in WAYS]


@pytest.fixture(params=[*WAYS, *PYTORCHS])
def way(request):
    """How the test's program runs."""
    ours = request.param in WAYS
    lib = al if ours else request.getfixturevalue("torch")
    return Way(lib, compiles=request.param.endswith("compiled"))
