"""Tour 5, exercise: a function whose results are an argument and views of an intermediate."""

import aotlite as al


def exercise(x: al.Tensor) -> tuple[al.Tensor, ...]:
    doubled = x * 2.0
    x.mul_(3.0)
    return x, doubled[0], doubled[1]  # one view alone would be memory of its own


def main() -> None:
    x = al.ones(2, 3).requires_grad_() * 1.0  # a leaf that requires grad could not be written
    print(al.inspect.explain_meta(al.inspect.stages_of(exercise, x)["analyze"]))


if __name__ == "__main__":
    main()
