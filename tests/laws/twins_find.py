"""PyTorch's counterparts of ops that ask where something holds."""

from tests.laws.torch_twins import WITHOUT_TWIN, twins

WITHOUT_TWIN.update(
    {
        "masked_take": "PyTorch makes it of masked_select, cat and view (masked_scatter_backward)",
        "repeat_places_sized": "PyTorch trusts the output_size that it is given",
    }
)

twins(
    nonzero=lambda torch, x: torch.nonzero(x),
    argwhere=lambda torch, x: torch.argwhere(x),
    repeat_interleave=lambda torch, *args, **kwargs: torch.repeat_interleave(*args, **kwargs),
    repeat_places=lambda torch, repeats: torch.repeat_interleave(repeats),
)
