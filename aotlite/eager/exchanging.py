"""`Exchanging`: the part of `Tensor` by which other libraries reach its memory. Rule: DEV-10."""

from __future__ import annotations

from typing import Any


class Exchanging:
    """What DLPack, and the interface of CUDA arrays, ask of a tensor."""

    __slots__ = ()

    def __dlpack__(self, **options: Any) -> Any:
        return _exchange().dlpack(self, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = _exchange().dlpack_device(self)
        return found

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found: dict[str, Any] = _exchange().array_interface(self)
        return found


def _exchange() -> Any:
    from aotlite.eager import exchange  # which makes tensors

    return exchange
