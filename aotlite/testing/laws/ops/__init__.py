"""Laws of ops: kernels, gradient formulas, scalar expressions, symbolic sizes, views."""
