"""`autograd.Function`: users' functions with a forward and a backward of their own."""
