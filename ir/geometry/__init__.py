"""Sizes, strides and the addresses that they span, without dtypes and devices.

sizes           what a size is, and arithmetic on shapes
layout          strides of results, and views by strides
memory_format   channels_last and its like
overlap         whether strided tensors share memory
box_equation    the equation behind that question; lattice: short bases for it
"""
