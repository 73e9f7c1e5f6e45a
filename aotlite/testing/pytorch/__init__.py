"""PyTorch as an oracle: the comparison, and the differences that rules demand."""
