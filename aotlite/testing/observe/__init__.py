"""Observations of calls, and the differences between two of them (GEN-11).

    observation   the data: of a call, and of each tensor
    observe_call  calls a function on an engine and observes
    differences   what differs between two
    exact_numbers which numbers are exact, so that sums of them are, in any order

Place: above engines, below `Program`; assertions, judges and relations compare by it.
"""
