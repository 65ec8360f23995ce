-- Lists of the forks of a session, and of the processes that a process started.
CREATE INDEX lash_sessions_source ON :"schema".lash_sessions ((relation::json #>> '{relation,source_session_id}'))
    WHERE relation::json #>> '{relation,source_session_id}' IS NOT NULL;
CREATE INDEX lash_processes_parent ON :"schema".lash_processes (parent_process_id, process_key)
    WHERE parent_process_id IS NOT NULL;
