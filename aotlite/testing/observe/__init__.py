"""What a user can observe of a call, and what differs between two observations.

observation   the data: `World`, with a `Seen` for each tensor
playing       calls a function on an engine and observes
differences   what differs between two
"""
