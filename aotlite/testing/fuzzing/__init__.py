"""Runs of many random programs: on all cores, contained, resumable.

    plan       the arguments of a run
    outcomes   the outcome of a program; a failure
    oracles    compiled against eager; `oracles.libraries`: one library against another
    one_program   one program, compiled and eager
    processes  where programs run: `child` runs them, `workers` starts, asks and replaces it
    run_file   the file from which a run continues
    statistics   the sums of a run
    campaign   the run: `fuzz`, which is `aotlite fuzz`
    reports    the printed report of a run

Spec: specs/testing.md.
"""
