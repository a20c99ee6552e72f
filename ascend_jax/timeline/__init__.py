"""How long it takes, event by event, and how that is shown."""
