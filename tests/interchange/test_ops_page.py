"""`docs/interchange_ops.md` says of each op what becomes of it."""

import importlib.util
from pathlib import Path

import pytest

from aotlite.interchange import to_onnx
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.meta import TensorMeta
from tests.interchange.op_samples import cases_of, exported_ops

TOOL = Path(__file__).parents[2] / "tools" / "interchange_ops.py"


def kinds():
    """The page's tool."""
    spec = importlib.util.spec_from_file_location("interchange_ops", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_complex(graph):
    metas = [node.meta for node in graph.nodes]
    flat = [each for meta in metas for each in (meta if type(meta) is tuple else (meta,))]
    return any(isinstance(each, TensorMeta) and each.dtype.is_complex for each in flat)


@pytest.mark.rules("ICH-1")
def test_an_op_leaves_unless_the_page_says_refused(monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.syspath_prepend(str(TOOL.parent))
    page = kinds()
    other = []
    for op in exported_ops():
        found = [left(case.graph) for case in cases_of(op, 8) if not is_complex(case.graph)]
        if found and any(found) != (page.kind_of(op) != page.KINDS[5]):
            other.append(op.name)
    assert " ".join(other) == ""


def left(graph):
    """Whether the graph is printed for ONNX."""
    try:
        to_onnx(graph)
    except UnsupportedError:
        return False
    return True
