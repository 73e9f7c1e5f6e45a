"""`aotlite.partition`: what a partitioner of one's own is made of.

A partitioner is a function from the joint graph to a `Partition`. It decides which forward values
are saved and ends with `cut(graph, saved)`; what is not saved, the backward computes again.
"""

from aotlite.stages.facts import Partition, SavedValue
from aotlite.stages.s8_partition import cut, default_partition

__all__ = ["Partition", "SavedValue", "cut", "default_partition"]
