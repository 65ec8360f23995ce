-- Text search over the first messages and the labels of sessions.

-- The words of a session. A sealed message has none; the labels are readable. Punctuation separates words.
CREATE FUNCTION :"schema".lash_session_words(first_user_message text, labels text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
SELECT to_tsvector(
    'pg_catalog.simple'::regconfig,
    translate(
        CASE WHEN starts_with(first_user_message, '~lash1~') THEN '' ELSE left(first_user_message, 1000) END
        || ' ' || labels,
        '!"#$%&''()*+,-./:;<=>?@[\]^_`{|}~',
        repeat(' ', 32)
    )
)
$$;

-- An index and not data: triggers keep it. Its name is not one of lash's tables, so that checks and moves of rows leave
-- it out: rows that are moved are indexed where they are written. It is beside lash_sessions, because every commit
-- writes a new version of that row, with entries in all indexes of its table.
CREATE TABLE :"schema".lashsearch (
    session_key bigint PRIMARY KEY REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    words       tsvector NOT NULL
);
-- Entries that are not merged into the index yet are read one by one, so there are few.
CREATE INDEX lashsearch_words ON :"schema".lashsearch USING gin (words) WITH (gin_pending_list_limit = 256);

-- A session has a row in it once it has a first message.
CREATE FUNCTION :"schema".lash_session_searched() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF NEW.first_user_message = '' THEN
        DELETE FROM :"schema".lashsearch WHERE session_key = NEW.session_key;
    ELSE
        INSERT INTO :"schema".lashsearch (session_key, words)
        VALUES (NEW.session_key, :"schema".lash_session_words(NEW.first_user_message, NEW.labels))
        ON CONFLICT (session_key) DO UPDATE SET words = excluded.words;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER lash_sessions_search_insert AFTER INSERT ON :"schema".lash_sessions
FOR EACH ROW WHEN (NEW.first_user_message <> '')
EXECUTE FUNCTION :"schema".lash_session_searched();
CREATE TRIGGER lash_sessions_search_change AFTER UPDATE OF first_user_message, labels ON :"schema".lash_sessions
FOR EACH ROW
WHEN (
    OLD.first_user_message <> NEW.first_user_message
    OR (OLD.labels <> NEW.labels AND NEW.first_user_message <> '')
)
EXECUTE FUNCTION :"schema".lash_session_searched();

INSERT INTO :"schema".lashsearch (session_key, words)
SELECT s.session_key, :"schema".lash_session_words(s.first_user_message, s.labels)
FROM :"schema".lash_sessions AS s
WHERE s.first_user_message <> '';
