"""`save_state` and `load_state`: states in `.npz` files, without pickle.

A file is an uncompressed zip archive of `.npy` members, one a tensor, as `numpy.savez` writes it. A
dtype that NumPy has no code for is stored as unsigned integers, with the dtype in the member's name
(`weight@bfloat16.npy`). A tensor whose own name has an @ gets its dtype there too, so that a suffix
after the last @ is always a dtype. Reading takes at most as much memory as the file has bytes.
"""

from __future__ import annotations

import math
import os
import struct
import tokenize
import zipfile
from collections.abc import Mapping
from typing import IO

import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.interop import from_numpy
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import AotliteError, ArgumentError, FormatError

_SUFFIX = ".npy"
_BROKEN = (
    AotliteError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,  # a seek to where no file can have a byte
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,  # of a header of Python 2's, which NumPy reads by tokens
    zipfile.BadZipFile,
)


def save_state(state: Mapping[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Writes tensors by name, such as a `state_dict`, to an `.npz` file that replaces `path`.

    `numpy.load` reads it too. The file at `path` stays as it was if writing fails.
    """
    if not isinstance(state, Mapping):
        raise ArgumentError(f"save_state: the state is {state!r}, expected tensors by name")
    arrays = dict([_encoded(name, _host(name, t), t.dtype) for name, t in state.items()])
    target = os.fspath(path)
    # A name that nobody can foresee, of a new file: no link of another user is followed.
    partial = f"{target}.{os.urandom(8).hex()}.part"
    try:
        with open(partial, "xb") as new, zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                # A ZipInfo of its own: without it the member, and so the file, carries the time.
                member = zipfile.ZipInfo(name + _SUFFIX)
                with archive.open(member, "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
        os.replace(partial, target)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def _host(name: object, tensor: Tensor) -> np.ndarray:
    if not isinstance(name, str) or "\0" in name:  # where a zip archive's name would end
        raise ArgumentError(f"save_state: a name is {name!r}, expected a string without NUL")
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"save_state: {name!r} is {tensor!r}, expected a tensor")
    return tensor.detach().cpu().numpy()


def load_state(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors by name in a file of `save_state` or `numpy.savez`.

    Raises FormatError for anything else: compressed, truncated or overlapping members, objects.
    """
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                _check_sizes(archive, os.fstat(file.fileno()).st_size)
                pairs = [_member(archive, info) for info in archive.infolist()]
        except _BROKEN as error:
            raise FormatError(
                f"load_state: {os.fspath(path)} is no readable state ({error}), expected an "
                "uncompressed .npz file"
            ) from error
    state = dict(pairs)
    if len(state) != len(pairs):
        raise FormatError(f"load_state: {os.fspath(path)} has a name twice, expected names once")
    return state


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Members overlap, or grow when read, only if they say they are larger than the file."""
    claimed = sum(info.file_size for info in archive.infolist())
    if claimed > size:
        raise FormatError(f"its members claim {claimed} bytes, the file has {size}")
    for info in archive.infolist():
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise FormatError(f"member {info.filename!r} is compressed or encrypted")
        if not info.filename.endswith(_SUFFIX):
            raise FormatError(f"member {info.filename!r} is no {_SUFFIX} file")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[str, Tensor]:
    name = info.filename.removesuffix(_SUFFIX)
    with archive.open(info) as file:
        array = _read_array(file)
    stem, mark, dtype = name.rpartition("@")
    if not mark:
        return name, from_numpy(array)
    return stem, from_numpy(_decoded(array, dtypes.by_name(dtype)))


def _encoded(name: str, array: np.ndarray, dtype: DType) -> tuple[str, np.ndarray]:
    """(member, array) in a dtype that the file format has a code for."""
    code = _code(dtype)
    member = name if code == dtype.numpy and "@" not in name else f"{name}@{dtype.name}"
    return member, array.view(code)


def _code(dtype: DType) -> np.dtype:
    """The dtype in which the file format stores one."""
    return dtype.numpy if dtype.numpy.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


def _decoded(array: np.ndarray, dtype: DType) -> np.ndarray:
    if array.dtype != _code(dtype):
        raise FormatError(f"a member of {dtype} is stored as {array.dtype}")
    return array.view(dtype.numpy)


def _read_array(file: IO[bytes]) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise FormatError(f"a member has format version {version}, expected 1.0 or 2.0")
    shape, fortran, dtype = readers[version](file)
    return _array_of(file.read(), shape, fortran, dtype)


def _array_of(data: bytes, shape: tuple[int, ...], fortran: bool, dtype: np.dtype) -> np.ndarray:
    size = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or size != len(data):
        raise FormatError(f"a member of shape {shape} and dtype {dtype} holds {len(data)} bytes")
    if dtype.kind == "b" and max(data, default=0) > 1:
        raise FormatError("a member of bools holds other bytes than 0 and 1")
    # bytearray: what a tensor is made on has to be writable.
    flat = np.frombuffer(bytearray(data), dtype)
    return flat.reshape(shape, order="F" if fortran else "C")
