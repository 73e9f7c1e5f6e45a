"""Programs as files of Python that run: for aotlite, as a pytest test, for NumPy, for PyTorch."""
