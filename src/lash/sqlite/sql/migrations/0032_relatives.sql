-- Lists of the forks of a session, and of the processes that a process started.
CREATE INDEX lash_sessions_source ON lash_sessions (relation ->> '$.relation.source_session_id')
    WHERE relation ->> '$.relation.source_session_id' IS NOT NULL;
CREATE INDEX lash_processes_parent ON lash_processes (parent_process_id, process_key)
    WHERE parent_process_id IS NOT NULL;
