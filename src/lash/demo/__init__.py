"""The promise, shown: a worker is killed in mid-turn, another one goes on, and nothing is lost or repeated."""
