"""Logs: loggers, trace files, Chrome traces, and the events that the journey emits for them.

    stages, kernels, recompilations ──LogEvent──> loggers        text, by Python's logging
                                              ──> trace file     JSON, a line each
                                              ──> Chrome trace   compilations and calls

`log_options` reads AOTLITE_LOG and has `set_logs`. Events are those of `aotlite.ir.logs`. Nothing
here runs while nobody listens. Rules: LOG-1 to LOG-5, GEN-9. Spec: `specs/logs.md`.
"""
