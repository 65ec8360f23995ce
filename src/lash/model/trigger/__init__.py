"""Values of triggers, occurrences and schedules."""
