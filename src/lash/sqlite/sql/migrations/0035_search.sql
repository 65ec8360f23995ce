-- Text search over the first messages and the labels of sessions.

-- An index and not data: it holds no text, and triggers keep it. Its name is not one of lash's tables, so that checks and
-- moves of rows leave it out: rows that are moved are indexed where they are written. A removed word leaves no trace.
CREATE VIRTUAL TABLE lashsearch USING fts5 (
    words, content = '', columnsize = 0, tokenize = 'unicode61 remove_diacritics 0'
);
INSERT INTO lashsearch (lashsearch, rank) VALUES ('secure-delete', 1);

-- A session has a row in it once it has a first message. A sealed message has no words; the labels are readable.
CREATE TRIGGER lash_sessions_search_insert AFTER INSERT ON lash_sessions
WHEN new.first_user_message <> ''
BEGIN
    INSERT INTO lashsearch (rowid, words)
    VALUES (
        new.session_key,
        CASE
            WHEN substr(new.first_user_message, 1, 7) = '~lash1~' THEN '' ELSE substr(new.first_user_message, 1, 1000)
        END || ' ' || new.labels
    );
END;
CREATE TRIGGER lash_sessions_search_change AFTER UPDATE OF first_user_message, labels ON lash_sessions
WHEN old.first_user_message <> new.first_user_message OR old.labels <> new.labels
BEGIN
    INSERT INTO lashsearch (lashsearch, rowid, words)
    SELECT
        'delete',
        old.session_key,
        CASE
            WHEN substr(old.first_user_message, 1, 7) = '~lash1~' THEN '' ELSE substr(old.first_user_message, 1, 1000)
        END || ' ' || old.labels
    WHERE old.first_user_message <> '';
    INSERT INTO lashsearch (rowid, words)
    SELECT
        new.session_key,
        CASE
            WHEN substr(new.first_user_message, 1, 7) = '~lash1~' THEN '' ELSE substr(new.first_user_message, 1, 1000)
        END || ' ' || new.labels
    WHERE new.first_user_message <> '';
END;
CREATE TRIGGER lash_sessions_search_delete AFTER DELETE ON lash_sessions
WHEN old.first_user_message <> ''
BEGIN
    INSERT INTO lashsearch (lashsearch, rowid, words)
    VALUES (
        'delete',
        old.session_key,
        CASE
            WHEN substr(old.first_user_message, 1, 7) = '~lash1~' THEN '' ELSE substr(old.first_user_message, 1, 1000)
        END || ' ' || old.labels
    );
END;

INSERT INTO lashsearch (rowid, words)
SELECT
    s.session_key,
    CASE
        WHEN substr(s.first_user_message, 1, 7) = '~lash1~' THEN '' ELSE substr(s.first_user_message, 1, 1000)
    END || ' ' || s.labels
FROM lash_sessions AS s
WHERE s.first_user_message <> '';
