"""Sizes as symbols in programs that leave."""
