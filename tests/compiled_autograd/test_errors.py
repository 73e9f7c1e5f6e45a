"""CAG-22: an error in a compiled tape says which node it is of, and where its forward was."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, enable

pytestmark = pytest.mark.rules("CAG-22", "TEN-43")
BACKENDS = ("reference", "loops", "cpu")


def raised(loss: Any, tapes: CompiledAutograd) -> Any:
    with pytest.raises(al.AotliteError) as info, enable(tapes):
        loss.backward()
    return info.value


def picked(x: Any, index: Any) -> Any:
    return (x.index_select(0, index) * 2).sum()


@pytest.mark.parametrize("anomaly", [False, True])
@pytest.mark.parametrize("known", [0, 1, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_of_a_kernel_names_the_node_and_its_forward(
    backend: str, known: int, anomaly: bool
) -> None:
    """When the tape is recorded, and when it is met again, as instructions and as Python.

    Nodes that were made in anomaly mode know their line.
    """
    tapes = CompiledAutograd.of(backend)
    for attempt in range(known + 1):
        index: Any = al.tensor([0, 2])
        x: Any = al.ones(3, requires_grad=True)
        if anomaly:
            with al.autograd.detect_anomaly():
                loss = picked(x, index)
        else:
            loss = picked(x, index)
        if attempt < known:
            with enable(tapes):
                loss.backward()
    index.array[0] = 9
    error = raised(loss, tapes)
    notes = "\n".join(error.__notes__)
    assert str(error).startswith("index_add: an index is 9")
    assert "for IndexSelectBackward (NodeCall" in notes
    assert ("The forward of IndexSelectBackward" in notes) is anomaly
    assert ("in picked" in notes) is anomaly
    assert "while running: index_add = ops.index_add" in notes


@pytest.mark.parametrize("known", [0, 1, 4])
def test_an_error_in_an_inlined_call_names_its_line(known: int) -> None:
    """What a compiled function recorded knows where its user stood."""
    tapes = CompiledAutograd.of("reference")
    compiled = al.compile(picked, backend="reference")
    for attempt in range(known + 1):
        index: Any = al.tensor([0, 2])
        x: Any = al.ones(3, requires_grad=True)
        loss = compiled(x, index) * 3
        if attempt < known:
            with enable(tapes):
                loss.backward()
    index.array[0] = 9
    notes = "\n".join(raised(loss, tapes).__notes__)
    assert "in picked" in notes
    assert "return (x.index_select(0, index) * 2).sum()" in notes


@pytest.mark.parametrize("anomaly", [False, True])
@pytest.mark.parametrize("known", [0, 2])
def test_a_saved_value_that_was_written_is_named_with_its_forward(
    known: int, anomaly: bool
) -> None:
    def wave(x: Any) -> tuple[Any, Any]:
        h = x * 1
        return h, h.sin().sum()

    tapes = CompiledAutograd.of("reference")
    for attempt in range(known + 1):
        x: Any = al.ones(3, requires_grad=True)
        if anomaly:
            with al.autograd.detect_anomaly():
                h, loss = wave(x)
        else:
            h, loss = wave(x)
        if attempt < known:
            with enable(tapes):
                loss.backward()
    h.mul_(2)
    error = raised(loss, tapes)
    notes = "\n".join(error.__notes__)
    assert str(error).startswith("SinBackward: a saved tensor")
    assert "for SinBackward (NodeCall" in notes
    assert ("in wave" in notes) is anomaly


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("calls", [0, 4])
def test_a_kernels_error_in_a_compiled_call_names_the_users_line(backend: str, calls: int) -> None:
    """That of the reference backend did not, in either of its forms."""

    def select(x: Any, index: Any) -> Any:
        return x.index_select(0, index) * 2

    compiled = al.compile(select, backend=backend)
    for _ in range(calls):
        compiled(al.ones(3), al.tensor([0, 2]))
    with pytest.raises(al.IndexOutOfRangeError) as info:
        compiled(al.ones(3), al.tensor([0, 9]))
    notes = info.value.__notes__
    assert "while running: index_select = ops.index_select(primals_0, 0, primals_1)" in notes
    assert "in select" in notes[-1]
