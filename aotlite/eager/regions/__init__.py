"""Regions of a program: `checkpoint` recomputes one in the backward, `annotate` tags one."""
