"""Recordings with symbolic sizes, which serve tapes of other sizes."""
