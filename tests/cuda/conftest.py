"""The devices that these tests run on: the emulated one always, a real one where there is one."""

import pytest

from aotlite.ir.arrays.cuda_devices import cuda_device, why_unavailable
from aotlite.testing import emulated_cuda


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    if request.param == "emulated":
        return emulated_cuda()
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(str(reason))
    return cuda_device()
