"""Copies between devices, and values on the host."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import aotlite as al
from aotlite.ir.dtypes import DTYPES
from aotlite.testing import emulated_cuda


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_dtypes_go_there_and_back(device, dtype):
    x = al.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]).to(dtype)
    there = x.t().to(device)
    assert (device, (3, 2), x.t().stride()) == (there.device, there.shape, there.stride())
    assert there.cpu().numpy().tobytes() == x.t().numpy().tobytes()


def test_to_gives_the_tensor_itself_where_nothing_is_to_be_done(device):
    x = al.ones(2, device=device)
    assert x is x.to(device)
    assert x is x.to(al.ones(1, device=device))
    assert x is not x.to(device, copy=True)


@pytest.mark.parametrize("target", ["float64", "float16", "int32"])
def test_to_another_device_and_dtype(device, target):
    dtype = getattr(al, target)
    found = al.tensor([1.5, 2.5]).to(device, dtype, non_blocking=True)
    assert (device, dtype) == (found.device, found.dtype)
    assert al.tensor([1.5, 2.5]).to(dtype).tolist() == found.tolist()


def test_copies_are_differentiable(device):
    x = al.tensor([1.0, 2.0], requires_grad=True)
    (x.to(device) * 3).cpu().sum().backward()
    assert ([3.0, 3.0], "cpu") == (x.grad.tolist(), str(x.grad.device))


def test_copy_casts_broadcasts_and_goes_both_ways(device):
    there, here = al.zeros(2, 3, device=device), al.zeros(2, 3)
    there.copy_(al.tensor([1, 2, 3]))
    here.copy_(there[:, :1])
    assert [[1.0, 2.0, 3.0]] * 2 == there.tolist()
    assert [[1.0] * 3] * 2 == here.tolist()
    view = there[:, ::2]
    view.copy_(al.tensor([7.0, 8.0]))
    assert [[7.0, 2.0, 8.0]] * 2 == there.tolist()


def test_between_two_devices_of_a_kind():
    first, second = emulated_cuda(0), emulated_cuda(1)
    x = al.arange(6, device=first).reshape(2, 3).t()
    moved = x.to(second)
    assert (second, x.tolist(), x.stride()) == (moved.device, moved.tolist(), moved.stride())
    x.copy_(moved + 1)
    assert (moved.cpu() + 1).tolist() == x.tolist()


def test_values_on_the_host(device):
    x = al.tensor([1.5, -2.0], device=device)
    assert ([1.5, -2.0], 1.5, 1.5) == (x.tolist(), x[0].item(), float(x[0]))
    assert f"tensor([ 1.5, -2. ], device='{device}')" == repr(x)
    for ask in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError, match=f"^numpy: the tensor is on {device}, expected the CPU"):
            ask()


def test_data_of_every_kind_becomes_a_tensor_there(device):
    for data in ([1, 2], (1.0, 2.0), np.float32([1, 2]), np.array([1, 2], ml_dtypes.bfloat16)):
        for make in (al.tensor, al.as_tensor, al.asarray):
            found, expected = make(data, device=device), make(data)
            assert (device, expected.dtype) == (found.device, found.dtype)
            assert expected.tolist() == found.tolist()
    held = al.tensor([1.0], device=device)
    assert device is al.tensor(held).device
    assert "cpu" == str(al.tensor(held, device="cpu").device)
    assert device is held.new_tensor([1]).device is held.new_zeros(3).device


def test_copies_and_pickles_are_on_the_device(device):
    x = al.tensor([1.0, 2.0], device=device)[1:]
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert (device, [2.0]) == (made.device, made.tolist())
        made.add_(1)
    assert [2.0] == x.tolist()
