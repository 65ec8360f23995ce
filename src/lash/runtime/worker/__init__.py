"""The worker: finding work, slots, leases, timers and maintenance."""
