"""The shipped adapters. A module is imported only when its library is asked for."""
