"""The table of ops and the overloads of aten that have their meaning: data, read in both ways.

    lt(self, Number(other)) = lt.Scalar(self, other)

says: `lt` with a number in the place of `other` is `torch.ops.aten.lt.Scalar`, and back. A
parameter that a side does not name has its default there. `Number`, `Tensor`, `Given`, `Complex`
and `Real` are conditions on an argument, `One(dim)` is the tuple of one. The first row that fits is
taken.
A row with `<-` is only read: to_fx does not write such a node.
The in-place forms of a row are derived from it (`matcher`). Spec: `specs/torch_fx.md`.
"""

SAME = {
    "default": """trunc frac floor_divide silu mish softplus log_sigmoid elu leaky_relu hardtanh
hardsigmoid hardswish threshold softshrink hardshrink logical_and logical_or logical_xor logical_not
isnan isinf isfinite isposinf isneginf signbit bitwise_not gcd lcm complex polar maximum minimum neg
abs sign exp expm1 log log1p sqrt rsqrt reciprocal sin cos tanh sigmoid relu floor ceil exp2 log2
log10 logaddexp logaddexp2 tan asin acos atan atan2 hypot sinh cosh asinh acosh atanh sinc erf erfc
erfinv logit lgamma digamma addcmul addcdiv fmax fmin nextafter heaviside gather scatter_add alias
detach view unsqueeze t permute expand diagonal unfold take put masked_scatter
index_select embedding index_add index_copy aminmax max min argmax argmin topk kthvalue mode median
nanmedian histc matmul mm bmm mv dot linalg_cross addmm addmv baddbmm addbmm addr linalg_cholesky
linalg_qr linalg_svd linalg_eigh linalg_inv linalg_solve linalg_solve_triangular linalg_det
linalg_slogdet linalg_matrix_exp one_hot conv2d layer_norm group_norm rms_norm upsample_nearest2d
upsample_nearest2d_backward upsample_bilinear2d upsample_bilinear2d_backward adaptive_avg_pool2d
adaptive_max_pool2d max_pool2d_with_indices avg_pool2d avg_pool2d_backward cumsum cumprod cummax
cummin logcumsumexp logsumexp linalg_vector_norm nansum clone copy full linspace logspace
tril_indices triu_indices cat stack repeat constant_pad_nd flip roll tril triu split_with_sizes
view_as_complex_copy view_as_real view_as_complex select_scatter slice_scatter
diagonal_scatter""",
    "Tensor": "add sub mul div slice split",
    "int": "transpose select softmax log_softmax unbind",
    "two": "scatter_reduce",
    "correction": "var std",
    "atol_rtol_float": "linalg_pinv",
}
"""Overload -> ops of the same name, with the same names of parameters."""

BY_OTHER = "eq ne lt le gt ge fmod remainder bitwise_and bitwise_or bitwise_xor copysign"
"""Ops of `self` and `other` with the overloads `Tensor` and `Scalar`."""

ROWS = """
round(self, decimals=0) = round.default(self)
round(self, decimals=decimals) = round.decimals(self, decimals=decimals)
remainder(Number(self), other) = remainder.Scalar_Tensor(self, other)
bitwise_and(Number(self), other) = bitwise_and.Scalar_Tensor(self, other)
bitwise_or(Number(self), other) = bitwise_or.Scalar_Tensor(self, other)
bitwise_xor(Number(self), other) = bitwise_xor.Scalar_Tensor(self, other)
bitwise_left_shift(Number(self), other) = bitwise_left_shift.Scalar_Tensor(self, other)
bitwise_left_shift(self, Number(other)) = bitwise_left_shift.Tensor_Scalar(self, other)
bitwise_left_shift(self, other) = bitwise_left_shift.Tensor(self, other)
bitwise_right_shift(Number(self), other) = bitwise_right_shift.Scalar_Tensor(self, other)
bitwise_right_shift(self, Number(other)) = bitwise_right_shift.Tensor_Scalar(self, other)
bitwise_right_shift(self, other) = bitwise_right_shift.Tensor(self, other)
floor_divide_(self, other) = floor_divide_.Tensor(self, other)
transpose_(self, dim0, dim1) = transpose_.default(self, dim0, dim1)
div_floor(self, other) = div.Tensor_mode(self, other, rounding_mode='floor')
div_trunc(self, other) = div.Tensor_mode(self, other, rounding_mode='trunc')
clamp(self, Number(min), Number(max)) = clamp.default(self, min, max)
clamp(self, min, max) = clamp.Tensor(self, min, max)
clamp(self, min) <- clamp_min.Tensor(self, min)
clamp(self, max=max) <- clamp_max.Tensor(self, max)
replace_nonfinite(self, nan, posinf, neginf) = nan_to_num.default(self, nan, posinf, neginf)
prelu_kernel(self, weight) = _prelu_kernel.default(self, weight)
where(self, Number(value), Number(other)) = where.Scalar(self, value, other)
where(self, Number(value), other) = where.ScalarSelf(self, value, other)
where(self, value, Number(other)) = where.ScalarOther(self, value, other)
where(self, value, other) = where.self(self, value, other)
masked_fill(self, mask, Number(value)) = masked_fill.Scalar(self, mask, value)
masked_fill(self, mask, value) = masked_fill.Tensor(self, mask, value)
cast(self, dtype) = _to_copy.default(self, dtype=dtype)
to_device(self, device) = _to_copy.default(self, device=device)
sgn_of_complex(Complex(self)) = sgn.default(self)
sign(Real(self)) <- sgn.default(self)
angle_of_complex(Complex(self)) = angle.default(self)
angle_of_real(Real(self)) = angle.default(self)
add_scaled(self, other, alpha) = add.Tensor(self, other, alpha=alpha)
sub_scaled(self, other, alpha) = sub.Tensor(self, other, alpha=alpha)
add(self, other) <- add.Scalar(self, other)
sub(self, other) <- sub.Scalar(self, other)
rsub(self, Number(other)) = rsub.Scalar(self, other)
rsub(self, other) = rsub.Tensor(self, other)
mul(self, other) <- mul.Scalar(self, other)
div(self, other) <- div.Scalar(self, other)
pow(Number(self), exponent) = pow.Scalar(self, exponent)
pow(self, Number(exponent)) = pow.Tensor_Scalar(self, exponent)
pow(self, exponent) = pow.Tensor_Tensor(self, exponent)
pow_(self, Number(exponent)) = pow_.Scalar(self, exponent)
pow_(self, exponent) = pow_.Tensor(self, exponent)
conj(self) = conj_physical.default(self)
relu_backward(self, output) = threshold_backward.default(self, output, 0)
gelu(self, tanh=True) = gelu.default(self, approximate='tanh')
gelu(self, tanh=False) = gelu.default(self)
polygamma_of(self, n) = polygamma.default(n=n, self=self)
lerp(self, end, Number(weight)) = lerp.Scalar(self, end, weight)
lerp(self, end, weight) = lerp.Tensor(self, end, weight)
xlogy(Number(self), other) = xlogy.Scalar_Self(self, other)
xlogy(self, Number(other)) = xlogy.Scalar_Other(self, other)
xlogy(self, other) = xlogy.Tensor(self, other)
squeeze(self, dim=None) = squeeze.default(self)
squeeze(self, dim) = squeeze.dims(self, dim)
squeeze(self, One(dim)) <- squeeze.dim(self, dim)
scatter(self, dim, index, Number(src)) = scatter.value(self, dim, index, src)
scatter(self, dim, index, src) = scatter.src(self, dim, index, src)
index_fill(self, dim, index, Number(value)) = index_fill.int_Scalar(self, dim, index, value)
index_fill(self, dim, index, value) = index_fill.int_Tensor(self, dim, index, value)
searchsorted(sorted_sequence, Number(self), out_int32=out_int32, right=right, side=side,
    sorter=sorter) =
    searchsorted.Scalar(sorted_sequence, self, out_int32=out_int32, right=right, side=side,
    sorter=sorter)
searchsorted(sorted_sequence, self, out_int32=out_int32, right=right, side=side, sorter=sorter) =
    searchsorted.Tensor(sorted_sequence, self, out_int32=out_int32, right=right, side=side,
    sorter=sorter)
amax(self, dim=None, keepdim=keepdim) = amax.default(self, (), keepdim)
amax(self, dim, keepdim) = amax.default(self, dim, keepdim)
amin(self, dim=None, keepdim=keepdim) = amin.default(self, (), keepdim)
amin(self, dim, keepdim) = amin.default(self, dim, keepdim)
max_dim(self, dim, keepdim) = max.dim(self, dim, keepdim)
min_dim(self, dim, keepdim) = min.dim(self, dim, keepdim)
median_dim(self, dim, keepdim) = median.dim(self, dim, keepdim)
nanmedian_dim(self, dim, keepdim) = nanmedian.dim(self, dim, keepdim)
sort(self, dim, descending, stable=None) = sort.default(self, dim, descending)
sort(self, dim, descending, stable=stable) =
    sort.stable(self, stable=stable, dim=dim, descending=descending)
sum(self, dim=None, keepdim=False, dtype=dtype) = sum.default(self, dtype=dtype)
sum(self, dim, keepdim, dtype=dtype) = sum.dim_IntList(self, dim, keepdim, dtype=dtype)
mean(self, dim=None, keepdim=False, dtype=dtype) = mean.default(self, dtype=dtype)
mean(self, dim, keepdim, dtype=dtype) = mean.dim(self, dim, keepdim, dtype=dtype)
prod(self, dim=None, keepdim=False, dtype=dtype) = prod.default(self, dtype=dtype)
prod(self, Given(dim), keepdim, dtype=dtype) = prod.dim_int(self, dim, keepdim, dtype=dtype)
any(self, dim=None, keepdim=False) = any.default(self)
any(self, dim, keepdim) = any.dims(self, dim, keepdim)
any(self, One(dim), keepdim) <- any.dim(self, dim, keepdim)
all(self, dim=None, keepdim=False) = all.default(self)
all(self, dim, keepdim) = all.dims(self, dim, keepdim)
all(self, One(dim), keepdim) <- all.dim(self, dim, keepdim)
count_nonzero(self, dim=None) = count_nonzero.default(self)
count_nonzero(self, dim) = count_nonzero.dim_IntList(self, dim)
nonzero_fitted(self, count) = nonzero_static.default(self, size=count)
repeat_interleave_sized(repeats, output_size) =
    repeat_interleave.Tensor(repeats, output_size=output_size)
mse_loss(self, target) = mse_loss.default(self, target, 0)
smooth_l1_loss(self, target, beta) = smooth_l1_loss.default(self, target, 0, beta)
huber_loss(self, target, delta) = huber_loss.default(self, target, 0, delta)
binary_cross_entropy(self, target) = binary_cross_entropy.default(self, target, reduction=0)
binary_cross_entropy_with_logits(self, target, pos_weight) =
    binary_cross_entropy_with_logits.default(self, target, pos_weight=pos_weight, reduction=0)
nll_loss(self, target, weight, ignore_index) =
    nll_loss_nd.default(self, target, weight, 0, ignore_index)
batch_norm_eval(input, running_mean, running_var, weight, bias, eps) =
    batch_norm.default(input, weight, bias, running_mean, running_var, False, 0.0, eps, False)
upsample_nearest_exact2d(self, output_size, scales_h, scales_w) =
    _upsample_nearest_exact2d.default(self, output_size, scales_h, scales_w)
upsample_nearest_exact2d_backward(grad_output, output_size, input_size, scales_h, scales_w) =
    _upsample_nearest_exact2d_backward.default(grad_output, output_size, input_size, scales_h,
    scales_w)
adaptive_avg_pool2d_backward(grad_output, self) =
    _adaptive_avg_pool2d_backward.default(grad_output, self)
adaptive_avg_pool2d(self, output_size) <- _adaptive_avg_pool2d.default(self, output_size)
fill(self, value) = fill.Scalar(self, value)
eye(n, m=None, dtype=dtype, device=device) = eye.default(n, dtype=dtype, device=device)
eye(n, m, dtype=dtype, device=device) = eye.m(n, m, dtype=dtype, device=device)
reflection_pad(self, padding) = pad.default(self, padding, 'reflect')
replication_pad(self, padding) = pad.default(self, padding, 'replicate')
circular_pad(self, padding) = pad.default(self, padding, 'circular')
view_dtype(self, dtype) = view.dtype(self, dtype)
view_dtype_copy(self, dtype) = view_copy.dtype(self, dtype)
reshape_copy(self, size) = _reshape_copy.default(self, size)
view(self, size) <- _unsafe_view.default(self, size)
softmax(self, dim) <- _softmax.default(self, dim, False)
log_softmax(self, dim) <- _log_softmax.default(self, dim, False)
full(size, 0.0, dtype=dtype, device=device) <- zeros.default(size, dtype=dtype, device=device)
full(size, 1.0, dtype=dtype, device=device) <- ones.default(size, dtype=dtype, device=device)
clone(self) <- lift_fresh_copy.default(self)
alias(self) <- lift_fresh.default(self)
conj(self) <- _conj.default(self)
neg(self) <- _neg_view.default(self)
"""
"""The other rows, one a line; a line that is indented continues the one before."""
