"""The stored form of programs and requirements: plain JSON with a tag for each node."""
