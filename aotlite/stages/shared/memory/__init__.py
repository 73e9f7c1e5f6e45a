"""Analyses of memory: owners of storages, windows and view chains on them, view families."""
