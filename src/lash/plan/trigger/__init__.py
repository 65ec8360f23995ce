"""Rules of triggers, emission, deliveries, schedules and cron."""
