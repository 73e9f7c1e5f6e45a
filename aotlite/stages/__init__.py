"""The ten stages of compilation, one public function each; `aotlite.pipeline` calls them in order.

Stages never import each other. `records` has the frozen records that they pass on, `shared` the
analyses that several of them use, one per file.
"""

NAMES = (
    *("capture", "analyze", "convention", "joint", "desugar"),
    *("functionalize", "simplify", "partition", "lower", "runtime"),
)
"""The stages in order, by the names by which `compile(stages=...)` replaces them."""
