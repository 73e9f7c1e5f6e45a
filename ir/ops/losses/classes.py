"""Losses of class labels, and one_hot. Scores are (n, c, *) and labels (n, *), or (c,) and ()."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.geometry.sizes import Shape
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import Args, Dims, Metas, numbered
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.index.positions import place_of
from aotlite.ir.ops.kinds import require_floating
from aotlite.ir.ops.loops import Loops, LoopTensor, Position
from aotlite.ir.ops.losses.elementwise import bad_reduction, reduced
from aotlite.ir.ops.precision import OperandT, cast, wide, widened
from aotlite.ir.ops.views.forms import in_shape
from aotlite.ir.scalar.expression import Scalar

Described = TensorMeta | Operand
"""What has a shape and a dtype."""


def _class_dim(rank: int) -> int:
    return 1 if rank > 1 else 0


def _unlabeled(shape: Shape) -> Shape:
    """The shape without the classes."""
    dim = _class_dim(len(shape))
    return shape[:dim] + shape[dim + 1 :]


# ------------------------------------------------------------------------------------- the op
def _nll_rule(
    self: TensorMeta, target: TensorMeta, weight: TensorMeta | None, ignore_index: int
) -> TensorMeta:
    name = "nll_loss"
    _check_labels(name, self, target)
    require_floating(name, self.dtype)
    if weight is not None:
        _check_class_weight(name, self, weight)
    device = common_device(name, [self, target])
    return tensor_meta(target.shape, None, self.dtype, device)


def _check_labels(name: str, self: Described, target: Described) -> None:
    if target.dtype not in (dtypes.int64, dtypes.uint8):
        raise DTypeError(f"{name}: labels have dtype {target.dtype}, expected int64 or uint8")
    if not self.shape or target.shape != _unlabeled(self.shape):
        raise ShapeError(
            f"{name}: labels have shape {target.shape}, expected {_unlabeled(self.shape)} for "
            f"scores of shape {self.shape}"
        )


def _check_class_weight(name: str, self: Described, weight: Described) -> None:
    classes = self.shape[_class_dim(len(self.shape)) :][:1]
    if weight.shape != classes:
        raise ShapeError(
            f"{name}: argument 'weight' has shape {weight.shape}, expected {classes}, one for each "
            "class"
        )
    if weight.dtype is not self.dtype:
        raise DTypeError(
            f"{name}: argument 'weight' has dtype {weight.dtype}, expected {self.dtype}"
        )


def _check_range(xp: Namespace, name: str, labels: Array, classes: int, rest: str) -> None:
    flat = xp.reshape(labels, (-1,))
    wrong = xp.logical_or(flat < 0, flat >= classes)
    if bool(xp.any(wrong)):
        found = flat[xp.argmax(wrong)].tolist()
        raise IndexOutOfRangeError(
            f"{name}: a label is {found}, expected 0 <= label < {classes}{rest}"
        )


def _nll_kernel(
    xp: Namespace,
    meta: TensorMeta,
    a: Array,
    target: Array,
    weight: Array | None,
    ignore_index: int,
) -> Array:
    dim, labels = _class_dim(a.ndim), cast(xp, target, dtypes.int64)
    valid = labels != ignore_index
    rest = f", or {ignore_index}, which is ignored"
    _check_range(xp, "nll_loss", labels[valid], a.shape[dim], rest)
    zero = xp.zeros((), dtype=meta.dtype.numpy)
    if a.shape[dim] == 0:
        return xp.broadcast_to(zero, target.shape)
    safe = xp.where(valid, labels, 0)
    picked = xp.squeeze(xp.take_along_axis(a, xp.expand_dims(safe, dim), axis=dim), axis=dim)
    if weight is not None:
        weighted = wide(xp, picked, meta.dtype) * wide(xp, weight, meta.dtype)[safe]
        picked = cast(xp, weighted, meta.dtype)
    return xp.where(valid, -picked, zero)


def _safe(target: Operand, ignore_index: int) -> tuple[Operand, Operand]:
    """(which labels are ignored, labels with a class in the place of those)."""
    labels = target.to(dtypes.int64)
    ignored = labels == ignore_index
    return ignored, ignored.where(0, labels)


def _weights_met(target: Operand, weight: Operand, ignore_index: int) -> Operand:
    """The weight of each label's class, 0 where ignored."""
    ignored, labels = _safe(target, ignore_index)
    met = widened(weight).index_select(0, in_shape(labels, (labels.numel(),)))
    return ignored.where(0, met.view(labels.shape))


def _nll_to_self(
    grad: Operand, self: Operand, target: Operand, weight: Operand | None, ignore_index: int
) -> Operand:
    dim = _class_dim(self.ndim)
    ignored, labels = _safe(target, ignore_index)
    shares = -widened(grad)
    if weight is not None:
        shares = shares * _weights_met(target, weight, ignore_index)
    hollow = shares.new_zeros(self.shape)
    if self.size(dim) == 0:
        return hollow
    shares = ignored.where(0, shares)
    return hollow.scatter_add(dim, labels.unsqueeze(dim), shares.unsqueeze(dim))


def _nll_to_weight(
    grad: Operand, self: Operand, target: Operand, weight_meta: TensorMeta, ignore_index: int
) -> Operand:
    dim = _class_dim(self.ndim)
    ignored, labels = _safe(target, ignore_index)
    picked = widened(self).gather(dim, labels.unsqueeze(dim)).squeeze(dim)
    shares = ignored.where(0, -widened(grad) * picked)
    count = shares.numel()
    hollow = shares.new_zeros(weight_meta.shape)
    return hollow.index_add(0, in_shape(labels, (count,)), in_shape(shares, (count,)))


def _nll_loops(
    k: Loops,
    meta: TensorMeta,
    a: LoopTensor,
    target: LoopTensor,
    weight: LoopTensor | None,
    ignore_index: int,
) -> LoopTensor:
    dim = _class_dim(a.ndim)
    classes = a.shape[dim]
    k.check_index(target, 0, classes, ignored=ignore_index)
    if classes == 0:
        return k.map(meta, lambda *i: 0)

    def element(*i: Position) -> Scalar:
        label = k.cast(target[i], dtypes.int64)
        safe = place_of(k, label, classes)
        picked = a[(*i[:dim], safe, *i[dim:])]
        if weight is not None:
            picked = k.cast(k.wide(picked) * k.wide(weight[safe]), meta.dtype)
        return k.where(k.make("ne", label, ignore_index), -picked, 0)

    return k.map(meta, element)


def _nll_dims(args: Args, results: Metas) -> Dims:
    """All but the classes, which come second, or are the only dimension."""
    rank = len(args["self"].shape)
    places = tuple([i for i in range(rank) if i != 1 and rank > 1])
    whole = {"weight": (None,)} if args["weight"] is not None else {}
    classes = numbered(args["self"], (1 if rank > 1 else 0,))
    return Dims({"self": classes, "target": places, **whole}, (places,))


NLL_LOSS: PureOp = pure(
    "nll_loss(Tensor self, Tensor target, Tensor? weight=None, int ignore_index=-100) -> Tensor",
    meta=_nll_rule,
    kernel=_nll_kernel,
    # PyTorch saves self for its shape.
    vjp={"self": _nll_to_self, "weight": _nll_to_weight},
    cost=Cost.INDEXING,
    dims=_nll_dims,
    linear=(("self",),),
    loops=_nll_loops,
)
"""-self at each label times the weight of its class; 0 where ignored."""


# -------------------------------------------------------------------------------- what users call
@composite(is_method=False)
def nll_loss(
    input: OperandT,
    target: OperandT,
    weight: OperandT | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> OperandT:
    """-input at each label, for logarithms of probabilities: (n, c, *), (n, *) -> ().

    Classes have a `weight`, (c,), and the mean is by the sum of the weights met. Raises
    IndexOutOfRangeError for a label that is no class and not `ignore_index`.
    """
    losses = input._do("nll_loss", target, weight, ignore_index)
    return _averaged(losses, (target, weight, ignore_index), reduction)


def _averaged(losses: Any, labeled: tuple[Any, Any, int], reduction: str) -> Any:
    """The losses, their sum, or their mean by the weights of these labels."""
    if reduction != "mean":
        return reduced("nll_loss", losses, reduction)
    target, weight, ignore_index = labeled
    if weight is None:
        total = (target != ignore_index).sum()
    else:
        total = _weights_met(target, weight, ignore_index).sum()
    return (widened(losses).sum() / total).to(losses.dtype)


@composite(is_method=False)
def cross_entropy(
    input: OperandT,
    target: OperandT,
    weight: OperandT | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> OperandT:
    """nll_loss of the log_softmax: (n, c, *) with labels (n, *), or (c,) with ().

    A target of the input's shape holds the probability of each class. `label_smoothing` is the
    share of the target that all classes have alike.
    """
    name = "cross_entropy"
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(
            f"{name}: argument 'label_smoothing' is {label_smoothing}, expected 0 to 1"
        )
    if reduction not in ("mean", "sum", "none"):
        raise bad_reduction(name, reduction, "'mean', 'sum' or 'none'")
    if input.ndim and target.shape == input.shape:
        return _of_probabilities(input, target, weight, ignore_index, reduction, label_smoothing)
    _check_labels(name, input, target)
    dim = _class_dim(input.ndim)
    logs = input.log_softmax(dim)
    losses = logs._do("nll_loss", target, weight, ignore_index)
    labeled = (target, weight, ignore_index)
    loss = _averaged(losses, labeled, reduction)
    if label_smoothing == 0:
        return loss
    spread = -(logs if weight is None else logs * _per_class(weight, input.ndim)).sum(dim)
    spread = target.eq(ignore_index).where(0, spread)
    even = _averaged(spread, labeled, reduction)
    return loss * (1 - label_smoothing) + even * label_smoothing / input.size(dim)


def _per_class(weight: OperandT, rank: int) -> OperandT:
    return weight.view(-1, *[1] * (rank - 1 - _class_dim(rank)))


def _of_probabilities(
    input: OperandT,
    target: OperandT,
    weight: OperandT | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> OperandT:
    name = "cross_entropy"
    if not target.is_floating_point():
        raise DTypeError(
            f"{name}: a target of the input's shape has dtype {target.dtype}, expected floating "
            "probabilities"
        )
    if ignore_index >= 0:
        raise ArgumentError(
            f"{name}: argument 'ignore_index' is {ignore_index}, expected none with probabilities"
        )
    dim = _class_dim(input.ndim)
    if weight is not None:
        _check_class_weight(name, input, weight)
    if smoothing > 0:
        even = target.new_full((), smoothing) / input.size(dim)
        target = target * (1 - smoothing) + even
    products = input.log_softmax(dim) * target
    if weight is not None:
        products = products * _per_class(weight, input.ndim)
    if reduction == "none":
        return -products.sum(dim)
    total = -products.sum()
    if reduction == "sum":
        return total
    count = sizes.numel(_unlabeled(input.shape))
    return total / count if count else total * float("nan")


def _one_hot_rule(self: TensorMeta, num_classes: int) -> TensorMeta:
    if self.dtype is not dtypes.int64:
        raise DTypeError(f"one_hot: labels have dtype {self.dtype}, expected int64")
    if num_classes < 0:
        raise ArgumentError(
            f"one_hot: argument 'num_classes' is {num_classes}, expected -1 or more"
        )
    return tensor_meta((*self.shape, num_classes), None, self.dtype, self.device)


def _one_hot_kernel(xp: Namespace, meta: TensorMeta, labels: Array, num_classes: int) -> Array:
    _check_range(xp, "one_hot", labels, num_classes, "")
    classes = xp.arange(num_classes, dtype=meta.dtype.numpy)
    return cast(xp, xp.expand_dims(labels, -1) == classes, meta.dtype)


def _one_hot_loops(k: Loops, meta: TensorMeta, labels: LoopTensor, num_classes: int) -> LoopTensor:
    k.check_index(labels, 0, num_classes)

    def element(*i: Position) -> Scalar:
        is_it = k.make("eq", labels[i[:-1]], k.position(i[-1]))
        return k.cast(is_it, meta.dtype)

    return k.map(meta, element)


def _one_hot_dims(args: Args, results: Metas) -> Dims:
    places = numbered(args["self"])
    return Dims({"self": places}, ((*places, None),))


ONE_HOT: PureOp = pure(
    "one_hot(Tensor self, int num_classes) -> Tensor",
    meta=_one_hot_rule,
    kernel=_one_hot_kernel,
    loops=_one_hot_loops,
    vjp=None,
    cost=Cost.INDEXING,
    dims=_one_hot_dims,
)
"""(*,) -> (*, num_classes): 1 at each label, 0 elsewhere."""


@composite(is_method=False)
def one_hot(tensor: OperandT, num_classes: int = -1) -> OperandT:
    """1 at each label, 0 elsewhere: (*,) -> (*, num_classes).

    -1 takes one more than the largest label, which a compiled function does not know.
    """
    if num_classes == -1:
        if not tensor.numel():
            raise ArgumentError(
                f"one_hot: the labels have shape {tensor.shape}, expected num_classes for none"
            )
        num_classes = max(int(tensor.max().item()) + 1, 0)
    return tensor._do("one_hot", num_classes)
