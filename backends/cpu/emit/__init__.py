"""The C printer of loop programs: `c_program` prints a program, `c_kernel` a kernel. Spec:
`specs/c_printer.md`."""
