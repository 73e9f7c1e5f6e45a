"""FX's words for graphs, and passes that are written in them.

`Graph`, `Node`, `GraphModule`, `Interpreter`, `Transformer`, `symbolic_trace`, `Tracer` and `Proxy`
mean what they mean in torch.fx, on typed graphs of the ops of `aotlite.ops`. What has another word
here, `aotlite.fx.core.replaced` says. `reinplace` turns pure ops back into writes where nothing can
see it. Specs: `specs/fx.md`, `specs/reinplace.md`.
"""

from typing import Any

from aotlite import ops
from aotlite.fx import passes, subgraph_rewriter
from aotlite.fx.core.codegen import CodeGen
from aotlite.fx.core.replaced import ReplacedNameError, refuse_name, replaced_names
from aotlite.fx.graph import FxGraph as Graph
from aotlite.fx.graph_module import GraphModule
from aotlite.fx.interpreter import FxInterpreter as Interpreter
from aotlite.fx.interpreter import FxTransformer as Transformer
from aotlite.fx.node import FxNode as Node
from aotlite.fx.node import has_side_effect, map_aggregate, map_arg
from aotlite.fx.proxy import FxProxy as Proxy
from aotlite.fx.proxy import TraceError
from aotlite.fx.reinplace import Refusal, Reinplaced, reinplace, reinplaced
from aotlite.fx.subgraph_rewriter import replace_pattern
from aotlite.fx.tracer import Tracer, symbolic_trace

__all__ = [
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "Refusal",
    "Reinplaced",
    "ReplacedNameError",
    "TraceError",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "map_aggregate",
    "map_arg",
    "ops",
    "passes",
    "reinplace",
    "reinplaced",
    "replace_pattern",
    "replaced_names",
    "subgraph_rewriter",
    "symbolic_trace",
]


def __getattr__(name: str) -> Any:
    """Raises ReplacedNameError for a name of torch.fx that has another word here."""
    refuse_name("fx", name)
