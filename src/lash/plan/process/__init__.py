"""Rules of processes, their events, wakes, leases and grants."""
