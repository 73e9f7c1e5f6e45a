"""JAX as the conformance suite sees it: arrays that cannot be written, and functional updates."""

from __future__ import annotations

import numpy as np

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.libraries import required
from aotlite.conformance.witnesses.call_source import along

jax = required("jax", "aotlite[conformance]")
jnp = required("jax.numpy", "aotlite[conformance]")


class JAX(Adapter):
    """JAX's arrays, with 64-bit types enabled. Its "views" are new arrays."""

    name, version = "jax", jax.__version__
    immutable = True

    def __init__(self) -> None:
        jax.config.update("jax_enable_x64", True)

    from_list = lambda self, values, dtype: jnp.array(values, dtype)
    frozen = from_list
    zeros = lambda self, shape, dtype: jnp.zeros(shape, dtype)
    to_list = lambda self, a: a.tolist()
    shape = lambda self, a: a.shape
    dtype = lambda self, a: a.dtype.name

    reshape = lambda self, a, shape: a.reshape(shape)
    flatten = lambda self, a: a.ravel()
    transpose = lambda self, a, dim0, dim1: a.swapaxes(dim0, dim1)
    permute = lambda self, a, dims: a.transpose(dims)
    expand = lambda self, a, shape: jnp.broadcast_to(a, shape)
    select = lambda self, a, dim, index: a[along(dim, index)]
    narrow = lambda self, a, dim, start, length: a[along(dim, slice(start, start + length))]
    slice = lambda self, a, dim, start, stop, step: a[along(dim, slice(start, stop, step))]
    flip = lambda self, a, dim: jnp.flip(a, dim)
    squeeze = lambda self, a, dim: a.squeeze(dim)
    unsqueeze = lambda self, a, dim: jnp.expand_dims(a, dim)
    diagonal = lambda self, a: a.diagonal()
    split = lambda self, a, size, dim: jnp.split(a, list(range(size, a.shape[dim], size)), dim)
    unbind = lambda self, a, dim: jnp.unstack(a, axis=dim)
    view_dtype = lambda self, a, dtype: a.view(dtype)
    real = lambda self, a: a.real
    imag = lambda self, a: a.imag
    getitem = lambda self, a, key: a[key]
    pick = lambda self, a, places: a[jnp.array(places, int)]
    pick_mask = lambda self, a, mask: a[jnp.array(mask)]
    set_at = lambda self, a, key, value: a.at[key].set(value)
    add_at = lambda self, a, key, value: a.at[jnp.array(key)].add(value)

    add = lambda self, a, b: a + b
    mul = lambda self, a, b: a * b
    neg = lambda self, a: -a
    sum = lambda self, a, dim: jnp.sum(a, dim)
    sort = lambda self, a: jnp.sort(a)
    concat = lambda self, parts, dim: jnp.concat(parts, axis=dim)
    clone = lambda self, a: a.copy()
    asarray = lambda self, a, copy: jnp.asarray(a, copy=copy)
    astype = lambda self, a, dtype, copy: jnp.astype(a, dtype, copy=copy)
    convert = lambda self, a: jnp.asarray(a)
    to_numpy = lambda self, a: np.asarray(a)
    from_dlpack = lambda self, a: jnp.from_dlpack(a)

    vjp = lambda self, function, arrays, gradient: jax.vjp(function, *arrays)[1](gradient)
    detach = lambda self, a: jax.lax.stop_gradient(a)
    compile = lambda self, function: jax.jit(function)
    compile_donating = lambda self, function: jax.jit(function, donate_argnums=0)
    call = lambda self, function, arrays: function(*arrays)
    exp = lambda self, a: jnp.exp(a)
    sin = lambda self, a: jnp.sin(a)
    matmul = lambda self, a, b: a @ b
