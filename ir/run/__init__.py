"""The reference meaning of a graph: the interpreter, and passes written as one."""
