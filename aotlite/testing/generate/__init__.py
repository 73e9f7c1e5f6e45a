"""Random programs: arguments, steps, bodies, results."""
