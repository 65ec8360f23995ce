-- Stands in for the migration of artifacts and attachments until both branches meet.
SELECT 1;
