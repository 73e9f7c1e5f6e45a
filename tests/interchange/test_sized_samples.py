"""ICH-9: ops with symbols for their sizes have their values in onnxruntime, or are refused."""

from __future__ import annotations

import pytest

from tests.interchange.sized_samples import outcomes, sized_ops

pytest.importorskip("onnxruntime")
OPS = {op.name: op for op in sized_ops()}
SOME = ["sum", "softmax", "cat", "topk", "embedding", "where", *list(OPS)[::40]]


def differing(name: str) -> list[str]:
    return [words for kind, words in outcomes(OPS[name], 1) if kind == "differs"]


@pytest.mark.rules("ICH-9")
@pytest.mark.parametrize("name", dict.fromkeys(SOME))
def test_an_op_has_its_values_at_other_sizes(name: str) -> None:
    assert differing(name) == []


@pytest.mark.long
@pytest.mark.rules("ICH-9")
@pytest.mark.parametrize("name", OPS)
def test_every_op_has_its_values_at_other_sizes(name: str) -> None:
    assert differing(name) == []


@pytest.mark.rules("ICH-9")
def test_most_ops_with_one_form_leave_with_symbols() -> None:
    agreeing = ("sum", "softmax", "cat", "where", "embedding")
    kinds = {name: {kind for kind, _ in outcomes(OPS[name], 1)} for name in agreeing}
    assert all("agrees" in found for found in kinds.values()), kinds
