"""The lines of which random programs with sizes are drawn, as texts: see `drawn_size_programs`.

{x}, {y}, {z}: tensors; {q}: indices; {b}: a mask; {i}, {i2}: sizes; {j}, {d}, {p}: numbers.
"""

from __future__ import annotations

import attrs

UNARY = """
{x} * 2.0 | {x}.exp() | {x}.relu() | -{x} | {x}.detach() | {x} + {i} | {x}.clone() | {x} / {i}
{x} * (1 / max({i}, 1)) | {x}.masked_fill({x} > 0, 1.0) | {x}.tril() | {x}.triu() | {x}.double()
"""
BINARY = """
{x} + {y} | {x} * {y} | al.maximum({x}, {y}) | al.where({x} > 0, {x}, {y}) | {x} - {y}[:1]
{x} + {y}.sum(0) | {x} * {y}.mean(-1, keepdim=True) | {x}[..., None] + {y} | {x} + {y}.unsqueeze(0)
"""
VIEWS = """
{x}.reshape(-1) | {x}.t() | {x}.transpose(0, -1) | {x}[1:] | {x}[:{i}] | {x}[..., ::2] | {x}.flip(0)
{x}.unsqueeze({d}) | {x}.squeeze() | {x}[{j}] | {x}.view({i}, -1) | {x}.reshape({i}, {i2})
{x}.expand({i}, *{x}.shape) | {x}.flatten() | {x}.chunk(2)[0] | {x}.narrow(0, 0, {i}) | {x}[-{i}:]
{x}.split({i})[0] | {x}.permute(*range({x}.ndim)[::-1]) | {x}.contiguous() | {x}.unbind(0)[0]
{x}.view(-1) | {x}.movedim(0, -1) | {x}[{i}:] | {x}[{i}:{i2}] | {x}[:-{i}] | {x}[-{i}:-1:2]
{x}.reshape(-1, {i}) | {x}.reshape({i}, -1, {i2}) | {x}.split({i})[-1] | {x}.chunk({i})[-1]
{x}.tensor_split({i})[0] | {x}[{i} - 1] | {x}[-{i}] | {x}.select(0, {i} // 2) | {x}.squeeze(0)
{x}[:, None] | {x}[..., :{i}] | {x}.unfold(0, 2, 1) | {x}.diagonal() | {x}.unflatten(0, (-1, {i}))
{x}.view_as({y}) | {x}.expand_as({y}) | {x}.as_strided(({i}, 2), (1, 1)) | {x}[::{i}]
{x}.broadcast_to((2, *{x}.shape)) | {x}.expand(*{y}.shape) | {x}.view({x}.shape[::-1]) | {x}[None]
"""
REDUCTIONS = """
{x}.sum(0) | {x}.sum() | {x}.mean(-1) | {x}.amax(0) | {x}.sum(-1, keepdim=True) | {x}.cumsum(0)
{x}.softmax(-1) | {x}.prod(0) | {x}.argmax(0) | {x}.var(0) | {x}[:0].sum(0) | {x}[..., :0].mean(-1)
{x}[..., :0].amax(-1) | {x}.min(0)[0] | {x}.logsumexp(0) | {x}[{i}:].sum(0) | {x}[{i}:].amax(0)
({x} > 0).all(0) | {x}.std(-1)
"""
OTHERS = """
{x} @ {y} | al.cat([{x}, {y}], 0) | al.stack([{x}, {x}], 0) | {x}.repeat(2, *[1] * {r})
al.eye({i})
al.zeros({i}, {i2}) + 1.0 | al.arange({i}) * 1.0 | al.ones({i}) | al.full(({i}, 1), 2.0)
F.pad({x}, (1, {p})) | {x}.roll(1, 0) | {x}.sum_to_size(1) | {x}.new_zeros({i})
{x}.index_select(0, al.arange({x}.shape[0])) | {x}.sort(-1)[0] | al.cat([{x}] * {i}, 0)
al.stack([{x}] * {i}, -1) | al.cat({x}.split({i}), 0) | al.stack({x}.unbind(0)[::-1])
{x}.topk(1)[0]
al.cat([{x}[{i}:], {x}[:{i}]]) | sum({x}.split({i}), 0.0) | al.cat([{x}, {x}[:0]]) | {x} @ {x}.t()
{x}.repeat({i}) | {x}.roll({i}, 0) | {x}.repeat_interleave(2)
al.einsum('i...,i...->...', {x}, {x}) | F.pad({x}, ({i}, 0))
al.tensor([{i}, {i2}]) + 1
"""
WRITES = """
{x}.mul_(2.0) | {x}[0] = 1.0 | {x}.add_({y}) | {x}[1:].zero_() | {x}.view(-1)[::2].add_(1)
{x}.t().copy_({y}) | {x}[..., :{i}].fill_(3.0) | {x}.transpose_(0, -1) | {x}.relu_()
{x}[{i}:] = 2.0
{x}.copy_({y}[:1]) | {x}[{i} - 1] = {y}.sum() | {x}.unsqueeze_(0) | {x}.squeeze_()
{x}[{i}:{i2}] = 0.5
{x}[1:] += {x}[:-1] | {x}.diagonal().add_(1.0)
"""
LOOPS = (
    "{new} = {x}\nfor q in range({i}):\n    {new} = {new} + q",
    "{new} = {x}\nfor q in range(0, {i}, 2):\n    {new} = {new} * 2.0",
    "{new} = {x} * 0.0\nfor row in {x}:\n    {new} = {new} + row",
    "{new} = al.stack([row.sum() for row in {x}])",
    "{new} = {x}\nwhile {new}.shape[0] > 2:\n    {new} = {new}[1:]",
    "{new} = {x}\nfor q, size in enumerate({x}.shape):\n    {new} = {new} + q * size",
)
CHECKS = (
    "assert {i} > 1, {i}",
    "if {i} > 6:\n    raise ValueError(f'{{ {i} }} of {{ {i2} }}')",
    "assert {x}.shape[0] % 3 != 1",
)
CONDITIONS = """
{i} == 1 | {i} == {i2} | {i} > 3 | {i} % 2 == 0 | {i} <= {i2} | {i} != 0 | {i} // 2 > 1 | {i}
{x}.numel() > 6 | {x}.shape[0] in (2, 4) | {i} * {i2} == 8 | min({i}, {i2}) == 2
{x}.shape == {y}.shape
len({x}) > 2 | 2 < {i} < 6 | {i} % 3 == 1 and {i2} > 2 | {i} == 1 or {i2} == 1 | {x}.is_contiguous()
not {i} > 2 | {i} - {i2} > 0 | {i} % max({i2}, 1) == 0 | {x}.ndim == 2 | {x}.stride(0) == {i}
"""
INTS = """
n | m | k | n | m | n + 1 | n * m | n // 2 | m % 3 | max(n, m) | min(n, 3) | 2 | 1 | n - m
abs(n - m)
(n + 1) // 2 | n ** 2 | len({x}) | {x}.shape[-1] | {x}.numel() | n - n // 2 | -n | m - 1 | n % 2 | 3
{x}.ndim | int(n / 2) | sum({x}.shape) | divmod(n, 3)[1] | (n > 2) + 1 | {x}.shape[0] // 2
-(-n // 2)
"""

# Programs that compute floats of sizes have these besides.
FLOAT_LINES = """
{x} * ({i} / 3) | {x} + math.sqrt(abs({i})) | {x} * (1 / math.sqrt(max({i}, 1))) | {x} - float({i})
al.full(({i}, 2), {i2} / 7) | {x}[: round({i} * 0.7)] | {x}.clamp(max={i} * 0.5)
"""
FLOAT_CONDITIONS = "{i} / 3 > 1 | {i} * 0.5 == {i2} | {i} > 2.5 | math.sqrt(abs({i})) < 2"
FLOAT_INTS = """
math.ceil(n / 2) | int(m * 0.7) | round(n / 3) | math.isqrt(n) | int(n ** 0.5) | n.bit_length()
"""

# All programs but plain ones have these besides.
PRODUCTS = """
al.einsum('ij,jk->ik', {x}, {y}) | al.einsum('ij,kj->ik', {x}, {y}) | al.einsum('ii->i', {x})
al.einsum('ij,ij->i', {x}, {y}) | al.einsum('...j,...j->...', {x}, {y}) | al.einsum('ij->ji', {x})
al.einsum('bij,bjk->bik', {x}, {y}) | al.einsum('i,j->ij', {x}, {y}) | al.einsum('...i->...', {x})
al.einsum('ij,jk,kl->il', {x}, {y}, {z}) | al.tensordot({x}, {y}, 1) | al.bmm({x}[None], {y}[None])
al.outer({x}.flatten(), {y}.flatten()) | F.linear({x}, {y}) | F.layer_norm({x}, {x}.shape[-1:])
F.scaled_dot_product_attention({x}, {y}, {y}) | F.normalize({x}, dim=0) | al.kron({x}, {y})
F.cross_entropy({x}, {q}) | F.mse_loss({x}, {y}) | F.softmax({x}, 0)
"""
IMAGES = """
F.conv1d({x}[None], al.ones(2, {x}.shape[0], 2))
F.conv1d({x}[:, None], al.ones(1, 1, 2), stride=2)
F.conv1d({x}.reshape(1, 1, -1), al.ones(1, 1, 3), padding=1)
F.conv2d({x}, {y}[None, None, :2, :2])
F.conv2d({x}[None, None], al.ones(2, 1, 2, 2)) | F.conv2d({x}[None], {y}[:, None], groups={i})
F.conv2d({x}[None, None], al.ones(1, 1, 3, 3), padding=1, stride=2) | F.max_pool2d({x}[None], 2)
F.conv1d({x}[:, None], al.ones(2, 1, 2), dilation=2) | F.avg_pool1d({x}[None], 2)
F.conv1d({x}[None], {y}[None], padding={i}) | F.max_pool1d({x}[None], 2, 1)
F.conv_transpose1d({x}[None], al.ones({x}.shape[0], 1, 2), stride=2)
F.avg_pool2d({x}[None], (2, 1))
F.adaptive_avg_pool1d({x}[None], 2) | F.adaptive_avg_pool2d({x}[None], ({i}, 1))
F.interpolate({x}[None], {i}) | F.interpolate({x}[None, None], scale_factor=2)
F.interpolate({x}[None, None], size=({i}, 3), mode='bilinear')
"""
MASKED = """
{x}[{b}] | {x}.masked_select({b}) | {b}.nonzero() | {x}[{b}] * 2.0 | {x}[{b}].sum() | {x}.unique()
{x}[{x}[:, 0] > 0] | {x}[{b}][1:] | al.cat([{x}[{b}], {y}]) | ({q}).bincount() | {x}[{b}].sum(0)
al.ones({b}.sum().item()) | {x}.masked_select({b}).sum() | {x}[{b}].t() | {b}.nonzero()[:, 0]
{x}.repeat_interleave({q}, 0) | {x}[{b}].reshape(-1, {i}) | {x}[{b}] + {y}[{b}] | {x}[{b}].mean()
{x}[{b}][..., :{i}] | {x}[{b}].softmax(-1) | {x}[{b}].unsqueeze(0).expand(2, -1) | {x}.nonzero().t()
{x}[{b}] @ {y} | {x}[{b}].cumsum(0) | {x}[{b}].view(-1) | al.stack([{x}[{b}], {x}[{b}]])
"""
CHOSEN = """
al.where({b}, {x}, {y}) | al.where({b}, {x}, 0.0) | al.where({b}, {i}, {i2})
{x}.masked_fill({b}, {i})
al.where({x} > {i}, {x}, {i2}) | {x}.masked_scatter({b}, {y}) | {b}.any(0) | {b}.sum() / {i}
al.where(al.arange({i}) < {i2}, {i}, {i2}) | {x} if {i} > 2 else {y} | {x}.clamp({i}, {i2})
al.where(al.arange({x}.shape[0]) < {i}, {x}.sum(-1), {i2}) | {x} * {b}
al.where({b}, {x} * {i}, {y})
"""
INDEXED = """
{x}[{q}] | {x}.gather(0, {q}) | {x}.gather(-1, {q}) | {x}.scatter(0, {q}, 1.0) | {x}.take({q})
{x}.scatter_add(0, {q}, {y}) | {x}.index_select(0, {q}) | {x}.index_add(0, {q}, {y}) | {x}[:, {q}]
{x}.index_put(({q},), {y}) | {x}.index_put(({q},), al.tensor(1.0), accumulate=True) | {x}[{q}, 0]
F.embedding({q}, {x}) | {x}[..., {q}] | {x}.index_fill(0, {q}, 2.0) | {x}.index_copy(0, {q}, {y})
F.one_hot({q}, {i}) | {x}.argsort(-1) | {x}[{q} % max({x}.shape[0], 1)] | {x}[{q}].sum(0)
{x}[{q}, {q}]
{x}.index_select(-1, {q}) | {x}.take_along_dim({q}, 0) | {x}.scatter_reduce(0, {q}, {y}, 'amax')
{x}.index_select(0, {q} % max({x}.shape[0], 1)) | {x}[:, {q}].t() | al.bincount({q}, minlength={i})
"""
JOINED = """
al.cat([{x}, {y}, {z}], -1) | al.stack([{x}, {y}, {z}]) | al.cat([{x}[:1], {y}[1:], {z}])
al.cat([{x}.flatten(), {y}.flatten(), {z}.flatten()]) | al.stack([{x}.sum(), {y}.sum(), {z}.mean()])
F.pad({x}, ({p}, 1, {i}, 0)) | F.pad({x}, (-1, {i})) | F.pad({x}[None], ({p}, 1), mode='reflect')
F.pad({x}[None], (1, {p}), mode='replicate') | F.pad({x}[None], ({i}, 0), mode='circular')
al.cat([al.zeros({i}), {x}.flatten(), al.ones({i2})]) | al.hstack([{x}, {y}])
al.vstack([{x}, {y}])
al.cat([{x}, {y}])[{i}:] | al.stack([{x}, {y}], -1).flatten(-2) | F.pad({x}, ({i}, {i2}), value=1.0)
"""
RANDOM = """
F.dropout({x}, 0.5) | F.dropout({x}, 0.5, training={i} > 2) | al.rand({i}, 2) | al.rand_like({x})
{x} * al.rand({i}) | al.randn({i}) | al.randint(0, 3, ({i},)) | al.randperm({i})
F.dropout({x}, 0.0)
{x} + F.dropout({y}, 0.3) | F.dropout({x}[{i}:], 0.5) | {x}[al.randperm({x}.shape[0])]
"""
FURTHER_WRITES = """
{x}[{b}] = 1.0 | {x}[{b}] = {y}[{b}] | {x}[{b}] *= 2.0 | {x}[{q}] = 0.5 | {x}[{q}] += 1.0
{x}.index_put_(({q},), {y}) | {x}.scatter_(0, {q}, 1.0) | {x}.scatter_add_(0, {q}, {y})
{x}.masked_fill_({b}, 2.0) | {x}.index_add_(0, {q}, {y}) | {x}[1:].masked_fill_({x}[1:] > 0, 0.0)
{x}[:, {q}] = {y} | {x}.masked_scatter_({b}, {y}) | {x}.view(-1)[{q}] = 1.0 | {x}.detach().mul_(2.0)
{x}[::2].copy_({y}[::2]) | {x}.unbind(0)[-1].zero_() | {x}[{i}:][{b}[{i}:]] = {i2}
{x}.clamp_(max={i})
{x}.t()[1:].add_(1.0) | {x}[None].mul_(0.5) | {x}[{b}] = {i} | {x}.uniform_()
{x}[:{i}].index_fill_(0, {q}, 1.0)
{x}.split({i})[-1].add_({i2}) | {x}.expand_as({x}).sub_(1.0) | {x}[..., -1:].copy_({y}[..., :1])
"""
FURTHER_LOOPS = (
    "{new}_n = ({q}).max().item()\nal.check({new}_n >= 0)\n{new} = {x}[:{new}_n]",
    "{new}_n = {b}.sum().item()\nal.check({new}_n >= 0)\n{new} = al.ones({new}_n, {i}) + {new}_n",
    "{new}_n = ({q}).sum().item()\nal.check({new}_n > 0)\n{new} = {x} * {new}_n",
    "{new}_m = {x}[{b}]\nal.check({new}_m.shape[0] > 0)\n{new} = {new}_m / {new}_m.shape[0]",
    "{new}_n = ({q}).amin().item()\nal.check({new}_n >= 0)\nal.check({new}_n < {x}.shape[0])\n"
    "{new} = {x}[{new}_n]",
    "{new}_m = {x}[{b}]\nal.size_hint({new}_m.shape[0], 4)\n"
    "{new} = {new}_m.sum() if {new}_m.shape[0] > 2 else {x}",
    "{new}_n = ({q}).flatten()[0].item()\nal.check({new}_n >= 0)\n"
    "al.check({new}_n <= {x}.shape[0])\n{new} = al.cat([{x}[{new}_n:], {x}[:{new}_n]])",
    "{new} = {x}\nfor part in {x}.split(2):\n    {new} = part.sum(0) + {new}",
    "{new} = al.cat([part * q for q, part in enumerate({x}.chunk({i}))])",
    "{new} = al.autograd.grad(({x} * {x}).sum(), [{x}])[0]",
    "{new} = {x}.detach().requires_grad_()\n"
    "{new} = al.autograd.grad(({new} ** 2)[:{i}].sum(), [{new}])[0]",
    "al.manual_seed(3)\n{new} = F.dropout({x}, 0.5)",
    "al.manual_seed(n)\n{new} = al.rand({i})",
    "{new} = {x}.clone()\n{new}[1:] = {new}[:-1].clone()\n{new}.view(-1)[::2] += 1.0",
)
FURTHER_CHECKS = ("al.check({i} > 0)", "al.check({i} != {i2})", "al.manual_seed(5)")
INDICES = """
{x}.argmax(0) | ({x} > 0).long() | al.arange({i}) | ({x} * 2).long().abs() % 3 | {x}.argsort(0)
al.arange({x}.shape[0]) | {x}.nonzero()[:, 0] | al.tensor([0, {i} - 1]) | {x}.long().abs()
al.arange({x}.shape[0]) // 2 | al.tensor(1) | al.tensor([0, 0, 1]) | al.arange({i}) % 2
"""
MASKS = """
({x} > 0) | ({x} > {y}) | ({x}.sum(-1) > 0) | ({x} != 0) | (al.arange({x}.shape[0]) % 2 == 0)
(al.arange({x}.shape[0]) < {i}) | ({x} <= {i}) | ({x} > 0) | {x}.bool() | ({x}[0] >= 0)
"""
RESULTS = (
    "{{'a': {0}, 'b': ({rest})}}",
    "({0}, [[{rest}]])",
    "[{{'c': {0}}}, None, {rest}]",
    "[[{rest}], {{0: [{0}, 1.5]}}]",
)


def choices(text: str) -> tuple[str, ...]:
    """The lines of a text."""
    return tuple(each.strip() for line in text.strip().splitlines() for each in line.split(" | "))


_FAMILIES = tuple(
    map(choices, (UNARY, BINARY, VIEWS, VIEWS, VIEWS, REDUCTIONS, OTHERS, OTHERS, WRITES))
)
_FURTHER = (PRODUCTS, IMAGES, MASKED, MASKED, CHOSEN, INDEXED, INDEXED, JOINED, RANDOM, FLOAT_LINES)


@attrs.frozen
class Lines:
    """What lines of programs are drawn from."""

    families: tuple[tuple[str, ...], ...] = _FAMILIES
    writes: tuple[str, ...] = choices(WRITES)
    conditions: tuple[str, ...] = choices(CONDITIONS)
    ints: tuple[str, ...] = choices(INTS)
    loops: tuple[str, ...] = LOOPS
    checks: tuple[str, ...] = CHECKS
    indices: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    """What a line may stand in."""
    kinds: tuple[str, ...] = ()
    """Of arguments that have no floats."""


PLAIN = Lines()
FLOATS = Lines(
    (*_FAMILIES, *(choices(FLOAT_LINES),) * 4),
    conditions=PLAIN.conditions + choices(FLOAT_CONDITIONS) * 3,
    ints=PLAIN.ints + choices(FLOAT_INTS) * 2,
)
ALL = Lines(
    (*_FAMILIES, *map(choices, (*_FURTHER, FURTHER_WRITES, FURTHER_WRITES))),
    writes=PLAIN.writes + choices(FURTHER_WRITES),
    conditions=FLOATS.conditions,
    ints=PLAIN.ints * 3 + choices(FLOAT_INTS),
    loops=LOOPS + FURTHER_LOOPS,
    checks=CHECKS + FURTHER_CHECKS,
    indices=(*choices(INDICES), "{z}"),
    masks=(*choices(MASKS), "{z}"),
    results=RESULTS,
    blocks=("with al.no_grad():", "with al.no_grad():", "with al.enable_grad():"),
    kinds=("integers", "mask"),
)
