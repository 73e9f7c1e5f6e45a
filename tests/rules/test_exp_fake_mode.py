"""EXP-16, EXP-18, EXP-19: exports of Modules and tensors without data."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

import aotlite as al
from aotlite import nn
from aotlite.export import (
    FakeMode,
    aot_export_joint_simple,
    aot_export_joint_with_descriptors,
    aot_export_module,
)
from aotlite.pipeline import STAGES


class Net(nn.Module):
    """Layers with statistics, draws, a view and a write."""

    def __init__(self, width: int) -> None:
        self.first, self.norm = nn.Linear(width, 4), nn.BatchNorm1d(4)
        self.drop, self.calls = nn.Dropout(0.5), nn.Buffer(al.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        made = self.norm(self.first(x)).relu() + 1
        made[:, 0].mul_(2)
        return self.drop(made).sum(), made.detach().t()


JOINT: Any = {"trace_joint": True, "output_loss_index": 0}


@pytest.mark.rules("EXP-18")
@pytest.mark.parametrize("how", [{}, JOINT, {"pre_dispatch": True}], ids=["plain", "joint", "pre"])
def test_export_of_fakes_is_that_of_tensors(how: Any) -> None:
    mode = FakeMode()
    with mode:
        fake, x = Net(3), al.randn(5, 3)
    graph, signature = aot_export_module(fake, (x,), **how)
    expected, told = aot_export_module(Net(3), (al.ones(5, 3),), **how)
    assert graph.code == expected.code
    assert signature == told


@pytest.mark.rules("EXP-18")
def test_fakes_of_given_tensors_have_their_state() -> None:
    mode = FakeMode()
    weight = nn.Parameter(al.ones(2, 3))
    pairs = [
        (weight, mode.from_tensor(weight)),
        (nn.Buffer(al.ones(3)), None),
        (al.ones(4, 2).t(), None),
        (al.ones(2, requires_grad=True), None),
        (nn.Parameter(al.ones(2), requires_grad=False), None),
    ]
    for real, given in pairs:
        fake = mode.from_tensor(real) if given is None else given
        assert type(fake) is type(real)
        assert fake.meta == real.meta
        assert fake.requires_grad == real.requires_grad
        assert fake.is_leaf
    with pytest.raises(al.ArgumentError, match="from_tensor got 3, expected a plain tensor"):
        mode.from_tensor(3)  # type: ignore[arg-type]


@pytest.mark.rules("EXP-18")
def test_large_module_takes_no_memory() -> None:
    mode = FakeMode()
    tracemalloc.start()
    with mode:
        model = nn.Sequential(*[nn.Linear(100_000, 100_000) for _ in range(3)])
        x = al.ones(2, 100_000)

    class Step(nn.Module):
        def __init__(self) -> None:
            self.model = model

        def forward(self, x: Any) -> Any:
            return (self.model(x).sum(),)

    graph, _ = aot_export_module(Step(), (x,), **JOINT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    metas: list[Any] = [node.meta for node in graph.placeholders]
    assert sum(meta.numel for meta in metas) > 3e10
    assert peak < 50e6


@pytest.mark.rules("EXP-18")
def test_one_mode_goes_through_the_export() -> None:
    one, other = FakeMode(), FakeMode()
    with one:
        model = Net(3)
    with pytest.raises(al.ExportError, match="belong to two fake modes, expected one"):
        aot_export_module(model, (other.from_tensor(al.ones(5, 3)),))
    for each in (one, other):
        assert each.from_tensor(al.ones(2)).meta == al.ones(2).meta
    graph, _ = aot_export_module(model, (al.ones(5, 3),))  # a tensor with data beside fakes
    assert len(graph.placeholders) == 11


@pytest.mark.rules("EXP-18")
def test_joint_exports_take_fakes() -> None:
    mode = FakeMode()
    x = mode.from_tensor(al.ones(2, requires_grad=True))
    graph = aot_export_joint_simple(lambda x: (x * x,), (x,), trace_joint=True)
    real = al.ones(2, requires_grad=True)
    assert graph.code == aot_export_joint_simple(lambda x: (x * x,), (real,), trace_joint=True).code
    with mode:
        layer = nn.Linear(3, 2)
    joint = aot_export_joint_with_descriptors(layer, (mode.from_tensor(al.ones(5, 3)),))
    expected = aot_export_joint_with_descriptors(nn.Linear(3, 2), (al.ones(5, 3),))
    assert str(joint.described) == str(expected.described)


@pytest.mark.rules("EXP-18")
def test_values_of_fakes_are_refused() -> None:
    mode = FakeMode()
    x, real = mode.from_tensor(al.ones(2)), al.ones(2)
    for ask in (lambda: x + 1, lambda: x.sum(), x.tolist, x.numpy, lambda: al.compile(abs)(x)):
        with pytest.raises(al.UnsupportedError, match="belongs to a fake mode and has no data"):
            ask()
    with mode:
        assert (x + 1).shape == (2,)
        with pytest.raises(al.UnsupportedError, match="with data among tensors of a fake mode"):
            x + real
        with pytest.raises(al.UnsupportedError):
            x.sum().item()
    with mode, pytest.raises(al.ArgumentError, match="another fake mode is active"), FakeMode():
        pass
    with mode, mode:  # again
        pass
    assert (al.ones(2) + 1).tolist() == [2, 2]


@pytest.mark.rules("EXP-18")
def test_mode_ends_with_its_block() -> None:
    mode = FakeMode()
    with pytest.raises(ZeroDivisionError), mode:
        raise ZeroDivisionError
    assert al.ones(2).tolist() == [1, 1]


@pytest.mark.rules("EXP-19")
def test_marked_sizes_are_symbols() -> None:
    x = al.ones(5, 3)
    al.mark_dynamic(x, 0)
    fake = FakeMode().from_tensor(al.ones(5, 3), dynamic=[0])
    texts = [aot_export_module(Net(3).eval(), (each,))[0].code for each in (x, fake)]
    assert texts[0] == texts[1]
    assert "f32[s0, 3]" in texts[0]


@pytest.mark.rules("EXP-19")
def test_marked_size_of_a_fake_that_is_fixed_is_refused() -> None:
    class Fixed(nn.Module):
        def forward(self, x: Any) -> Any:
            return (x + al.ones(5, 1),)

    fake = FakeMode().from_tensor(al.ones(5, 3), dynamic=[0])
    with pytest.raises(al.ExportError, match="size 0 of x is marked .* the function fixes it"):
        aot_export_module(Fixed(), (fake,))


@pytest.mark.rules("EXP-16")
def test_export_lowers_nothing_and_makes_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def named(name: str, stage: Any) -> Any:
        def noting(*args: Any) -> Any:
            ran.append(name)
            return stage(*args)

        return noting

    for name, stage in [*STAGES.items()]:
        monkeypatch.setitem(STAGES, name, named(name, stage))
    aot_export_module(Net(3), (al.ones(5, 3),), **JOINT)
    assert ran == [*STAGES][:7]  # what computes its gradients itself has no backward to cut off
    ran.clear()
    aot_export_joint_with_descriptors(nn.Linear(3, 2), (al.ones(5, 3),))
    assert ran == [*STAGES][:8]
