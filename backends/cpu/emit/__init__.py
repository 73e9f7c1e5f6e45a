"""Loop programs as C text. Spec: `specs/c_printer.md`."""
