"""Regions of a program: computed again in the backward, or annotated."""
