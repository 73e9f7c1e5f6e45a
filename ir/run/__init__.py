"""The interpreter, which is the reference semantics of graphs, and passes written as one."""
