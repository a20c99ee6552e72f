"""What was evaluated and measured, kept: one SQLite file for all processes of a user, and JSON to share it."""
