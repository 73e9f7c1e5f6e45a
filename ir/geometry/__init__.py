"""Sizes, strides and the addresses that they span; nothing of dtypes and devices."""
