"""Wrapper subclasses, and the functions needed to write them. Spec: `specs/subclasses.md`."""

from aotlite.eager.subclass.protocol import (
    flatten,
    inner_tensors,
    is_traceable_wrapper_subclass,
    leaves_of,
    unflatten,
)
from aotlite.sharding.tensor import ShardedTensor
from aotlite.stages.s5_desugar.creation_meta import (
    CreationRecord,
    creation_records,
    inner_mutated_indices,
    records_of_inputs,
    requires_subclass_dispatch,
    static_indices,
    unwrap,
    unwrap_joint,
    wrap,
)
from aotlite.subclasses.encoded import EncodedTensor
from aotlite.subclasses.masked import MaskedTensor, masked_tensor
from aotlite.subclasses.parameters import unwrap_parameters, unwrap_subclass_parameters
from aotlite.subclasses.quantized import QuantizedTensor
from aotlite.subclasses.sparse import SemiStructuredSparseTensor
from aotlite.subclasses.two_tensor import TwoTensor

__all__ = [
    "CreationRecord",
    "EncodedTensor",
    "MaskedTensor",
    "QuantizedTensor",
    "SemiStructuredSparseTensor",
    "ShardedTensor",
    "TwoTensor",
    "creation_records",
    "flatten",
    "inner_mutated_indices",
    "inner_tensors",
    "is_traceable_wrapper_subclass",
    "leaves_of",
    "masked_tensor",
    "records_of_inputs",
    "requires_subclass_dispatch",
    "static_indices",
    "unflatten",
    "unwrap",
    "unwrap_joint",
    "unwrap_parameters",
    "unwrap_subclass_parameters",
    "wrap",
]
