"""Symbolic integers: polynomials over symbols, what is known of them, and what was assumed."""
