"""Rules of gradients: histories of writes in place, what is collected where, `vjp`."""
