"""Values of processes, their events and leases."""
