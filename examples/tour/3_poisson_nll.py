"""Tour 3, exercise: an op with a gradient, and the law that notices a wrong one."""

from typing import Any

import aotlite as al
from aotlite.ir import scalar
from aotlite.testing import laws


def declared(name: str, slope: Any) -> Any:
    """`other - self * log(other)`; `slope` is the gradient of `other`."""
    return al.register_op(
        f"{name}(Tensor self, Tensor other) -> Tensor",
        kernel=lambda xp, a, b: b - a * xp.log(b),
        scalar=lambda a, b: b - a * scalar.log(b),
        vjp={"self": lambda grad, other: -grad * other.log(), "other": slope},
        result="float",
    )


def main() -> None:
    right = declared("tour_poisson_nll", lambda grad, self, other: grad * (1 - self / other))
    print(laws.check_op(right))
    x, y = al.ones(2).requires_grad_(), al.full((2,), 4.0).requires_grad_()
    al.compile(lambda x, y: right(x, y).sum())(x, y).backward()
    print("gradients", x.grad, y.grad)
    wrong = declared("tour_poisson_wrong", lambda grad, self, other: grad * (1 + self / other))
    try:
        laws.check_op(wrong)
    except laws.LawError as error:
        print(str(error).split(":")[0])


if __name__ == "__main__":
    main()
