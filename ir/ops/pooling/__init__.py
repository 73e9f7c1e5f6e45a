"""Pooling of images and lines, with its loops."""
