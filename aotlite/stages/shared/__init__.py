"""Questions that several stages ask, one a file."""
