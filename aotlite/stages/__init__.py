"""The ten stages of compilation, one public function each; `aotlite.pipeline` calls them in order.

Stages never import each other. What they share: `facts` (the records they hand on), `aliasing`
(questions about imperative graphs), `places` (where tensors from outside are found again).
"""
