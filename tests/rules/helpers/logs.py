"""Blocks in which logs are on: their lines, or the records of a trace."""

import json
import logging
from contextlib import contextmanager

import aotlite as al


class Kept(logging.Handler):
    """A handler that formats each record and keeps it."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        record.said = record.getMessage()
        self.records.append(record)

    @property
    def lines(self):
        """The lines of all records."""
        return [line for record in self.records for line in record.said.split("\n")]

    def of(self, name):
        """The texts of one logger."""
        return [each.said for each in self.records if each.name == f"aotlite.{name}"]


@contextmanager
def kept():
    """A block whose records of aotlite's loggers are kept; it sets no level."""
    handler = Kept()
    logging.getLogger("aotlite").addHandler(handler)
    try:
        yield handler
    finally:
        logging.getLogger("aotlite").removeHandler(handler)


@contextmanager
def logged(**options):
    """A block with these options of `set_logs`, whose records are kept."""
    with kept() as handler:
        al.set_logs(**options)
        try:
            yield handler
        finally:
            al.set_logs()


def records(path):
    """The records of a trace file, each line of which is one."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def unnested(spans):
    """Pairs of spans, each (begin, end), of which one begins in the other and ends after it."""
    found, open_spans = [], []
    for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_spans and open_spans[-1][1] <= begin:
            open_spans.pop()
        if open_spans and end > open_spans[-1][1]:
            found.append((open_spans[-1], (begin, end)))
        open_spans.append((begin, end))
    return found
