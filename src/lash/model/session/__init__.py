"""Values of sessions: nodes, messages, commits, checkpoints, frames and usage."""
