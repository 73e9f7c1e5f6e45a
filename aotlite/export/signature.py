"""`GraphSignature`: the calling convention of an exported graph, by the names of its values.

Rules: EXP-8, EXP-9, EXP-10. Spec: `specs/export.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class BackwardSignature:
    """Of a graph with the backward of a loss: its gradients, and the loss (EXP-9)."""

    gradients_to_parameters: Mapping[str, str]
    """Output -> qualified name. A parameter that the loss does not reach is absent (EXP-7)."""
    gradients_to_user_inputs: Mapping[str, str]
    """Output -> input."""
    loss_output: str


@attrs.frozen
class GraphSignature:
    """What each input and output of an exported graph is.

    Inputs and outputs have the names of their roles, as in the printed graph. The graph's outputs
    are the updated inputs, the user's results, and the gradients, in this order; behind an effect's
    token and before the generator's state.
    """

    parameters: tuple[str, ...]
    """The qualified names of the Module's parameters, tied ones each."""
    buffers: tuple[str, ...]
    user_inputs: tuple[str, ...]
    user_outputs: tuple[str | None, ...]
    """None for a result that is no tensor; it stands in the graph's outputs as a constant."""
    inputs_to_parameters: Mapping[str, str]
    inputs_to_buffers: Mapping[str, str]
    buffers_to_mutate: Mapping[str, str]
    """Output -> the buffer whose new value it is, written or assigned (EXP-12)."""
    parameters_to_mutate: Mapping[str, str]
    user_inputs_to_mutate: Mapping[str, str]
    """Output -> input."""
    in_spec: Any
    """The containers of the user's arguments: an optree spec of (args, kwargs)."""
    out_spec: Any
    backward_signature: BackwardSignature | None = None
    input_tokens: tuple[str, ...] = ()
    output_tokens: tuple[str, ...] = ()
    random_inputs: tuple[str, ...] = ()
    """The generator's seed and offset, the last inputs of a graph that draws (RNG-2)."""
    random_outputs: tuple[str, ...] = ()
    size_outputs: tuple[str, ...] = ()
    """Outputs behind the results: the sizes that depend on values, 0-d integers (DYN-5)."""
    tied: Mapping[str, str] = {}
    """Further qualified names of a parameter or buffer -> the one that is in the maps (EXP-7)."""

    @property
    def lifted(self) -> dict[str, str]:
        """Input -> qualified name, of parameters and buffers."""
        return {**self.inputs_to_parameters, **self.inputs_to_buffers}

    @property
    def mutations(self) -> dict[str, str]:
        """Output -> its target: a qualified name, or a user's input."""
        return {
            **self.parameters_to_mutate,
            **self.buffers_to_mutate,
            **self.user_inputs_to_mutate,
        }
