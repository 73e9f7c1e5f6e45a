"""Calls on tapes of a known structure, without hashing or recording them anew."""
