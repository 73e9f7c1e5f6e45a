"""Frozen records that stages pass to each other, without behavior."""
