"""The ten stages of compilation, one public function each; `aotlite.pipeline` calls them in order.

Stages never import each other. What they share: `facts` (the records they hand on), `aliasing`
(questions about imperative graphs), `places` (where tensors from outside are found again).
"""

NAMES = (
    *("capture", "analyze", "convention", "joint", "desugar"),
    *("functionalize", "simplify", "partition", "lower", "runtime"),
)
"""The stages in order, by the names by which `compile(stages=...)` replaces them."""
