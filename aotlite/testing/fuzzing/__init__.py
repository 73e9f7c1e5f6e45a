"""Runs of many random programs: on all cores, contained, resumable.

    plan       what is run, and how long
    outcomes   what became of a program; a failure
    oracles    compiled against eager; `oracles.libraries`: one library against another
    one_program   one program, compiled and eager
    processes  where programs run: `child` runs them, `workers` starts, asks and replaces it
    run_file   the file that a run goes on from
    statistics   the sums of a run
    campaign   the run: `fuzz`, which is `aotlite fuzz`
    reports    what is printed of it

Spec: specs/testing.md.
"""
