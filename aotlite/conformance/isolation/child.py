"""The child process that runs rules on a library; `isolation.process` starts it.

Its arguments are the library, methods that have ended such a process, and the ids of the rules. It
writes results to standard output, one message a line. Output of the library goes to standard error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import cast

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.isolation.messages import encode, pack
from aotlite.conformance.isolation.tracked_adapter import Watched
from aotlite.conformance.libraries import adapter_of
from aotlite.conformance.rules import select
from aotlite.conformance.runner import name_of, run_rule
from aotlite.ir.errors import ArgumentError, DeviceError, MissingExtraError

Tell = Callable[..., None]


def main(arguments: Sequence[str]) -> None:
    """Runs rules on a library, and sends the results to the parent."""
    tell = _messenger()
    library, deadly, *ids = arguments
    try:
        adapter = adapter_of(library)
    except (MissingExtraError, DeviceError) as error:
        return tell(not_run=str(error))
    except ArgumentError as error:
        return tell(refused=str(error), notes=getattr(error, "__notes__", []))
    tell(name=name_of(adapter), version=adapter.version)
    watched = cast(Adapter, Watched(adapter, json.loads(deadly), lambda name: tell(call=name)))
    for rule in select(ids):
        outcome = run_rule(rule, watched, lambda case: tell(case=case))
        tell(rule=rule.id, outcome=pack(outcome))
    tell(done=True)


def _messenger() -> Tell:
    """Returns a writer to standard output, and redirects `sys.stdout` to standard error."""
    channel = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def tell(**message: object) -> None:
        channel.write(encode(**message))

    return tell
