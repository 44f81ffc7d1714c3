"""What is done to a system, with an undo that is written down before it happens."""
