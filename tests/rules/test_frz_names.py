"""FRZ-1, GRD-4: guards and errors of a frozen function name the function and its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.export import load, program
from aotlite.interchange.arrays.convention import graph_of
from tests.python_export.comparison import module_of


class Net(nn.Module):
    def __init__(self) -> None:
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        self.scale = 2.0

    def forward(self, x: Any, flag: bool = True) -> Any:
        return self.layers(x) * self.scale if flag else x


def weighted(w: Any, net: Any, x: Any, *, rest: Any) -> Any:
    return net(x) * w * rest["k"][0]


def a_net() -> Any:
    net: Any = Net()
    return net.requires_grad_(False)


def reasons(compiled: Any) -> list[str]:
    return [str(each.failure) for row in compiled.explain_recompiles() for each in row.reasons]


@pytest.mark.rules("FRZ-1", "GRD-4")
def test_guards_of_a_frozen_module_name_its_attributes_and_arguments():
    net = a_net()
    frozen = al.freeze(net, dynamic=False)
    frozen(al.ones(2, 3))
    net.scale = 3.0
    frozen(al.ones(2, 3))
    frozen(al.ones(5, 3))
    size = "argument 0 is f32[5, 3], expected f32[2, 3]"
    assert reasons(frozen.compiled) == ["Net.scale is 3.0, expected 2.0", size, size]
    assert "primals_4 is argument 0, f32[5, 3]" in frozen.compiled.entries[-1].meta.explain()
    assert "primals_0 is layers.0.weight" in frozen.compiled.entries[-1].meta.explain()


@pytest.mark.rules("FRZ-1", "GRD-4")
def test_guards_of_fixed_arguments_name_their_parameters():
    net, w = a_net(), al.ones(2)
    frozen = al.freeze(weighted, w, net, kwargs={"rest": {"k": [al.ones(2)]}}, dynamic=False)
    frozen(al.ones(2, 3))
    net.scale = 3.0
    frozen(al.ones(2, 3))
    frozen(al.ones(5, 3))
    size = "argument 2 is f32[5, 3], expected f32[2, 3]"
    assert reasons(frozen.compiled) == ["weighted.net.scale is 3.0, expected 2.0", size, size]
    assert repr(frozen) == "<frozen weighted: 1 variants>"


@pytest.mark.rules("FRZ-1", "CAP-3")
def test_a_capture_names_what_a_frozen_function_in_it_reads():
    net = a_net()
    part = al.freeze(weighted, al.ones(2), net, kwargs={"rest": {"k": [al.ones(2)]}})
    layers = [f"layers.{k}.{name}" for k in (0, 1) for name in ("weight", "bias")]
    wanted = [*[f"net.{name}" for name in layers], "w", "rest['k'][0]"]
    for function, root in ((part, "weighted"), (lambda x: part(x) + 1, None)):
        compiled: Any = al.compile(function, dynamic=False)
        compiled(al.ones(2, 3))
        cell = root or "closure of <lambda>, cell 0"
        found = [str(each) for each in compiled.entries[-1].hidden.values()]
        assert found == [f"{cell}.{name}" for name in wanted]
        before = net.scale
        net.scale = before + 1
        compiled(al.ones(2, 3))
        assert reasons(compiled) == [f"{cell}.net.scale is {before + 1}, expected {before}"]


@pytest.mark.rules("FRZ-1", "GEN-7", "GRD-4")
def test_errors_of_a_frozen_function_number_arguments_as_its_function_does():
    frozen = al.freeze(a_net(), dynamic=False, recompile_limit=1, recompile_limit_is_error=True)
    for call in (frozen, frozen.prepare):
        with pytest.raises(al.ArgumentError, match="^compile: argument 0 is <object .*, expected"):
            call(object())
        with pytest.raises(al.ArgumentError, match="^compile: argument 1 is <object .*, expected"):
            call(al.ones(2, 3), object())
    frozen(al.ones(2, 3))
    text = "compile: Net has 1 entries .*: size 0 of argument 0 is 5, expected 2"
    with pytest.raises(al.GuardError, match=text):
        frozen(al.ones(5, 3))


@pytest.mark.rules("FRZ-1", "PYX-2")
def test_a_file_of_a_frozen_function_names_its_state_by_the_users_words():
    net = a_net()
    frozen = al.freeze(weighted, al.full((2,), 3.0), net, kwargs={"rest": {"k": [al.ones(2)]}})
    x = al.rand(2, 3)
    file = module_of(frozen.to_python(args=(x,)))
    np.testing.assert_allclose(frozen(x).numpy(), file.weighted(x.numpy()), rtol=1e-5)
    layers = [f"net.layers.{k}.{name}" for k in (0, 1) for name in ("weight", "bias")]
    assert sorted([*layers, "w", "rest['k'][0]"]) == sorted(file.STATE)
    whole = module_of(al.freeze(net).to_python(args=(x,)))
    assert [name.removeprefix("net.") for name in layers] == [*whole.STATE]
    erasing = al.freeze(net, freezing_discard_parameters=True)
    erasing(x)
    with pytest.raises(
        al.FreezeError, match="parameter 'layers.0.weight' of a Net|weight.*discard"
    ):
        erasing.to_python(args=(x,))


@pytest.mark.rules("FRZ-7", "ICH-8")
def test_errors_say_how_a_frozen_function_is_saved_and_exported(tmp_path):
    frozen, x = al.freeze(a_net()), al.ones(2, 3)
    frozen(x)
    with pytest.raises(al.UnsupportedError, match="save: Net is frozen, expected a func") as saving:
        frozen.save(tmp_path / "net.bundle")
    assert "program(frozen, *args).save(path)" in saving.value.__notes__[0]
    with pytest.raises(al.ArgumentError, match="whose graphs have folded values") as exporting:
        graph_of(frozen)
    assert "Give the program of it, aotlite.export.program(fro" in exporting.value.__notes__[0]
    made = program(frozen, x)
    assert graph_of(made) is made.forward_graph
    made.save(tmp_path / "net.aotlite")
    assert frozen(x).tolist() == load(tmp_path / "net.aotlite")(x).tolist()
