"""Rules of sessions: commits, nodes, checkpoints, forks, frames and usage."""
