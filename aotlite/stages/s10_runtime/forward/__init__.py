"""The forward of an entry: what the generated function does once its guards hold."""
