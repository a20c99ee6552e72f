"""Operators of the runtime: prototypes, packages, the registry, and calls in two phases."""
