"""`aotlite.interchange.torch_fx`: graphs of torch.fx. Spec: `specs/torch_fx.md`."""

from aotlite.interchange.torch_fx.normalize import normal_form
from aotlite.interchange.torch_fx.reader import from_fx
from aotlite.interchange.torch_fx.writer import to_fx

__all__ = ["from_fx", "normal_form", "to_fx"]
