"""Checks of a compilation with `verify`: stages compared, facts derived again."""
