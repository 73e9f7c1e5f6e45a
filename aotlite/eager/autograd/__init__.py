"""The tape: what a backward pass needs to know, and the engine that runs it."""
