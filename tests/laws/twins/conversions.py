"""How PyTorch is called for the composites in `ir/ops/shape/conversions.py`."""

from tests.laws.twins.torch_twins import twins

twins(
    **{
        "to": lambda torch, x, *args, **kwargs: x.to(*args, **kwargs),
        "clone()": lambda torch, x, **kwargs: x.clone(**kwargs),
    }
)
