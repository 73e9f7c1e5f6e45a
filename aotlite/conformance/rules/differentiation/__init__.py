"""Rules of gradients: of in-place writes, their accumulation in leaves, `vjp`."""
