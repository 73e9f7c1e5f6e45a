"""FRZ-4: discarded parameters leave erased tensors, and their memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
import aotlite.ir.ops
from aotlite import nn
from aotlite.freezing.folded_values import FoldedValues
from aotlite.ir import op as ops
from aotlite.ir.run import row_blocks
from aotlite.ir.run.interpreter import ArrayValue, call_arrays
from aotlite.testing.laws.ops.runs import bound
from aotlite.testing.laws.ops.sharding import claims_dims
from tests.samples import samples_of

MEGABYTE = 1 << 20


class Tower(nn.Module):
    """A chain of layers whose weights are read through functions of them."""

    def __init__(self, size: int, count: int) -> None:
        self.layers = nn.ModuleList([_Layer(size, i) for i in range(count)])

    def forward(self, x: al.Tensor) -> al.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class _Layer(nn.Module):
    shift: nn.Buffer

    def __init__(self, size: int, seed: int) -> None:
        numbers = np.random.default_rng(seed).normal(size=(size, size)) / size
        self.weight = nn.Parameter(al.tensor(numbers, dtype=al.float32))
        self.register_buffer("shift", al.full((size,), 0.5 + seed))

    def forward(self, x: al.Tensor) -> al.Tensor:
        return x @ (self.weight * 2.0).tanh() + self.shift


def discarded(module: nn.Module, **options: Any) -> Any:
    return al.freeze(
        module, freezing_discard_parameters=True, **{"backend": "reference", **options}
    )


@pytest.mark.rules("FRZ-4")
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_a_discarded_module_computes_the_same(backend):
    module, x = Tower(5, 3), al.ones(2, 5)
    with al.no_grad():
        expected = [module(x).numpy(), module(al.ones(4, 5)).numpy()]
        frozen = discarded(module, backend=backend)
        for _ in range(2):
            np.testing.assert_allclose(frozen(x).numpy(), expected[0], rtol=1e-5)
        np.testing.assert_allclose(frozen(al.ones(4, 5)).numpy(), expected[1], rtol=1e-5)
    assert 6 == len(frozen.report().discarded)


@pytest.mark.rules("FRZ-4")
def test_other_arguments_are_differentiated_after_discarding():
    module = Tower(3, 2).requires_grad_(False)
    grads = []
    frozen = discarded(module)
    for each in (module, frozen, frozen):
        x = al.ones(2, 3).requires_grad_()
        each(x).sin().sum().backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1] == grads[2]


OPS: dict[str, Callable[[Any, Any], object]] = {
    "arithmetic": lambda w, x: w + 1,
    "a product": lambda w, x: x @ w,
    "a view": lambda w, x: w.t(),
    "an index": lambda w, x: w[0],
    "detach": lambda w, x: w.detach(),
    "a write": lambda w, x: w.detach_().add_(1.0),
    "a copy": lambda w, x: x.copy_(w),
    "numbers": lambda w, x: w.tolist(),
    "an array": lambda w, x: w.array,
    "a compiled function": lambda w, x: al.compile(lambda: w + 1)(),
    "a compiled argument": lambda w, x: al.compile(lambda w: w + 1)(w),
}


@pytest.mark.rules("FRZ-4")
@pytest.mark.parametrize("name", OPS)
def test_an_op_on_an_erased_parameter_names_it_and_its_module(name):
    module = Tower(2, 1)
    with al.no_grad():
        discarded(module)(al.ones(2, 2))
        with pytest.raises(
            al.FreezeError, match=r"parameter 'layers\.0\.weight' of a _Layer was discarded"
        ) as raised:
            OPS[name](module.layers[0].weight, al.ones(2, 2))
    assert "(FRZ-4)" in raised.value.__notes__[0]


@pytest.mark.rules("FRZ-4")
def test_an_erased_parameter_keeps_its_metadata():
    module = Tower(2, 1)
    before = module.layers[0].weight
    with al.no_grad():
        discarded(module)(al.ones(2, 2))
    after = module.layers[0].weight
    assert after is not before
    assert (type(before), before.shape, before.stride(), before.dtype, before.requires_grad) == (
        (type(after), after.shape, after.stride(), after.dtype, after.requires_grad)
    )
    assert ["layers.0.weight"] == [name for name, _ in module.named_parameters()]
    assert "Parameter containing:\nTensor(f32[2, 2], erased)" == repr(after)
    with pytest.raises(al.FreezeError, match=r"buffer 'layers\.0\.shift' of a _Layer"):
        module.layers[0].shift.clone()
    with pytest.raises(al.FreezeError, match="was discarded"):
        module.state_dict()
    with al.no_grad():
        assert 1.0 <= (before * 0 + 1).sum().item()  # who holds it still has it


@pytest.mark.rules("FRZ-4")
def test_a_written_buffer_is_not_discarded():
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))
    with al.no_grad():
        frozen = discarded(module)
        before = module[0].running_mean.tolist()
        frozen(al.rand(4, 3))
    assert before != module[0].running_mean.tolist()
    assert {"0.weight", "0.bias", "1.weight", "1.bias"} == {*frozen.report().discarded}


@pytest.mark.rules("FRZ-4")
def test_arguments_that_need_other_values_are_an_error():
    class Choosing(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(al.full((2,), 0.375))

        def forward(self, x: al.Tensor) -> al.Tensor:
            return x * (self.weight.exp() if x.dim() == 1 else self.weight.sin())

    with al.no_grad():
        frozen = discarded(Choosing())
        frozen(al.ones(2))
        with pytest.raises(al.FreezeError, match="need sin of frozen tensors, which was discarded"):
            frozen(al.ones(2, 2))
        assert 2.0 < frozen(al.ones(2)).sum().item()


def arrays_traced() -> int:
    """The bytes of all arrays of NumPy that were made since the trace began."""
    arrays = [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)]
    traces = tracemalloc.take_snapshot().filter_traces(arrays).traces
    return sum(each.size for each in traces)


class Bent(Tower):
    """A tower whose weights are read through one function, all before the first product."""

    def __init__(self, bend: Callable[[Any], Any], size: int, count: int) -> None:
        super().__init__(size, count)
        self.bend = bend

    def forward(self, x: al.Tensor) -> al.Tensor:
        layers: Any = self.layers
        for weight in [self.bend(layer.weight) for layer in layers]:
            x = x @ weight
        return x


F: Any = nn.functional


def halves(w: al.Tensor) -> al.Tensor:
    return w[: w.shape[0] // 2] + w[w.shape[0] // 2 :]


def repeated(w: al.Tensor) -> al.Tensor:
    return halves(w.repeat(2, 1))


BENDS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "two ops": (lambda w: (w * 2.0).tanh(), 1),
    "softmax": (lambda w: w.softmax(-1), 1),
    "gelu": (lambda w: F.gelu(w), 1),
    "layer_norm": (lambda w: F.layer_norm(w, w.shape[1:]), 1),
    "norms of rows": (lambda w: w / w.norm(dim=1, keepdim=True), 1),
    "deviations": (lambda w: w / w.std(1, keepdim=True), 1),
    "rounded": (lambda w: (w * 100.0).round().clamp(-128, 127).to(al.int8).to(al.float32), 1),
    "a sum of two": (lambda w: w.exp() + w.sin(), 2),
    "repeated": (repeated, 4),
}
"""name -> the function, and how many arrays of a weight's size it needs beside all weights: the
result and what is alive beside it (of `repeat` two and a copy, then both halves' sum)."""


@pytest.mark.rules("FRZ-4")
@pytest.mark.parametrize("name", BENDS)
def test_the_peak_while_discarding_is_that_of_one_cone(name, monkeypatch):
    """The memory inside of each op, too: `softmax` had two arrays beside its result."""
    bend, most = BENDS[name]
    size, count = 512, 3
    peaks: list[int] = []

    def watched(*args: Any, **options: Any) -> Any:
        before, arrays = tracemalloc.get_traced_memory()[0], arrays_traced()
        tracemalloc.reset_peak()
        value = of(*args, **options)
        peaks.append(arrays + tracemalloc.get_traced_memory()[1] - before)
        return value

    of = FoldedValues._value
    with al.no_grad():
        discarded(Bent(bend, 8, count))(al.ones(1, 8))  # imports, and caches of metas
        module, x = Bent(bend, size, count), al.ones(1, size)
        expected = module(x).numpy()
        del module
        gc.collect()
        monkeypatch.setattr(FoldedValues, "_value", watched)
        tracemalloc.start()
        try:
            frozen = discarded(Bent(bend, size, count))
            original = arrays_traced()
            result = frozen(x).numpy()
        finally:
            tracemalloc.stop()
    assert expected.tobytes() == result.tobytes()
    assert count * MEGABYTE <= original <= count * MEGABYTE + 32 * size
    assert max(peaks) <= original + most * MEGABYTE + 7 * row_blocks.BLOCK


@pytest.mark.rules("FRZ-4")
def test_of_two_errors_while_discarding_the_first_of_the_function_is_raised():
    """The cone of `b` needs less memory, and is folded first."""

    class Picking(nn.Module):
        def __init__(self) -> None:
            self.a, self.b = nn.Buffer(al.ones(4, 4)), nn.Buffer(al.ones(2))

        def forward(self, x: al.Tensor) -> Any:
            wide = self.a.exp().repeat(2, 2).to(al.int64)
            return x + F.one_hot(wide, 2).sum() + F.one_hot(self.b.to(al.int64), 1).sum()

    with al.no_grad():
        module = Picking()
        with pytest.raises(al.AotliteError) as expected:
            module(al.ones(1))
        with pytest.raises(al.AotliteError) as found:
            discarded(module)(al.ones(1))
    assert str(expected.value) == str(found.value)


@pytest.mark.rules("FRZ-4")
def test_blocks_of_rows_give_the_bits_of_the_whole(monkeypatch):
    monkeypatch.setattr(row_blocks, "_LEAST_ROWS", 1)
    counts: Counter[str] = Counter()
    for op in ops.OPS.values():
        samples = samples_of(op.name) if claims_dims(op) else []
        for sample in samples[:: max(1, len(samples) // 4)]:
            args = tuple([arrays_of(each) for each in bound(op, sample)])
            try:
                whole = call_arrays(op, args)
            except al.AotliteError:
                continue
            counts["cut"] += row_blocks._cut_of(op, args, 1) is not None
            found = row_blocks.call_in_blocks(op, args, 1)
            assert shown(whole) == shown(found), f"{op.name}{sample}"
    assert 150 < counts["cut"]


def arrays_of(value: Any) -> Any:
    if isinstance(value, al.Tensor):
        return ArrayValue(value.storage.buffer, value.meta, value.offset)
    return tuple(map(arrays_of, value)) if type(value) is tuple else value


def shown(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(shown, value))
    return value.array.tobytes(), value.meta


@pytest.mark.rules("FRZ-4")
def test_the_peak_while_discarding_is_the_original_and_the_largest_folded_tensor(monkeypatch):
    """Of arrays exactly, after each op that folds; what a compiled function itself is made of has
    some 0.2 MB, whatever the sizes are."""
    size, count, slack = 512, 6, MEGABYTE // 2  # weights of a megabyte each
    seen: list[int] = []

    def watched(*args: Any, **options: Any) -> Any:
        value = of(*args, **options)
        seen.append(arrays_traced())
        return value

    of = FoldedValues._value
    with al.no_grad():
        discarded(Tower(2, count))(al.ones(1, 2))  # imports, and caches of metas
        gc.collect()
        monkeypatch.setattr(FoldedValues, "_value", watched)
        tracemalloc.start()
        try:
            module, x = Tower(size, count), al.ones(1, size)
            frozen = discarded(module)
            original, arrays = tracemalloc.get_traced_memory()[0], arrays_traced()
            tracemalloc.reset_peak()
            frozen(x)
            peak = tracemalloc.get_traced_memory()[1]
            gc.collect()
            after = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert len(seen) == 3 * count  # a read, and two ops, for each weight
    assert count * MEGABYTE <= arrays <= count * MEGABYTE + 32 * size
    assert arrays + MEGABYTE <= max(seen) <= arrays + MEGABYTE + size
    assert peak <= original + MEGABYTE + slack
    assert after <= original + slack  # the folded weights, in the place of the original ones
