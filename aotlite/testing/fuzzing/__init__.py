"""Runs of many random programs: on all cores, contained, resumable.

    plan       what is run, and how long
    outcomes   what became of a program; a failure
    judges     compiled against eager; `library_judges`: one library against another
    one_program   one program, compiled and eager
    child      the process that programs run in; `workers`: what starts, asks and replaces it
    ledger     the file that a run goes on from
    tally      the sums of a run
    campaign   the run: `fuzz`, which is `aotlite fuzz`
    reports    what is printed of it

Spec: specs/testing.md.
"""
