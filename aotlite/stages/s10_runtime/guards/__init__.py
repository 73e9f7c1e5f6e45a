"""The guards of an entry: the tests that a call passes before the entry serves it."""
