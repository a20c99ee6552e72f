"""A small runtime: devices, memory, streams, events and operators as CANN has them, in virtual time."""
