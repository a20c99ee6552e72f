"""Measured rows in; what the model says of them, how far it is off, and the constants that fit them out."""
