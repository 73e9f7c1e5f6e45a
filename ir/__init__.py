"""The ground floor: graphs, ops and their rules. Data without policy; imports nothing of the rest.

Always imported as `aotlite.ir`: under the folder's own name every class would exist twice.
"""
