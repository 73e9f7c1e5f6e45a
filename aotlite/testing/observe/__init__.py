"""Observations of calls, and the differences between two of them (GEN-11).

    observation   the data: of a call, and of each tensor
    observe_call  calls a function on an engine and observes
    differences   compares two observations
    exact_numbers numbers whose sums are exact in any order

Place: above engines, below `Program`; assertions, oracles and relations compare observations.
"""
