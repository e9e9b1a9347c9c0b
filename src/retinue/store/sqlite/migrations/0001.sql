-- Version 1: logs, mailboxes, leases.
--
-- Logs are rowid tables with a unique (session, seq) index: new events go to the end of the table whatever session they
-- belong to, which writes fewer pages than a table ordered by session.

CREATE TABLE session (
    key             INTEGER PRIMARY KEY,
    id              TEXT    NOT NULL UNIQUE,
    root            TEXT    NOT NULL,  -- the session whose lease guards this one
    parent          TEXT,
    is_delegated    INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,  -- epoch ms, as all times here
    header          BLOB    NOT NULL,
    length          INTEGER NOT NULL DEFAULT 0,  -- events stored, so also the seq of the next one
    last_event_at   INTEGER NOT NULL,
    open_turn       INTEGER,
    open_activation INTEGER
) STRICT;

CREATE INDEX session_of_nobody ON session (created_at) WHERE is_delegated = 0;
CREATE INDEX session_by_parent ON session (parent, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX session_at_work   ON session (root) WHERE open_turn IS NOT NULL OR open_activation IS NOT NULL;

-- Large values that many events share, such as the request header of a hundred like children.
CREATE TABLE body (
    key  INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE event (
    session   INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    time      INTEGER NOT NULL,
    type      TEXT    NOT NULL,
    ignorable INTEGER NOT NULL DEFAULT 0,
    body      INTEGER,  -- where `data` is, if it is not here
    data      BLOB
) STRICT;

CREATE UNIQUE INDEX event_by_seq ON event (session, seq);

CREATE TABLE message (
    key         INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    session     INTEGER NOT NULL,
    ord         INTEGER NOT NULL,  -- a replacement shares it with what it replaced
    state       TEXT    NOT NULL DEFAULT 'pending',
    target      TEXT    NOT NULL,
    wake        INTEGER NOT NULL,
    parked      INTEGER NOT NULL DEFAULT 0,
    accepted_at INTEGER NOT NULL,
    turn        INTEGER,
    reason      TEXT,
    source      TEXT    NOT NULL,
    data        BLOB    NOT NULL,
    usage       BLOB
) STRICT;

CREATE INDEX message_by_order ON message (session, ord);
CREATE INDEX message_pending  ON message (session, ord) WHERE state = 'pending';

-- A row stays when its lease is free, so that fences never go back.
CREATE TABLE lease (
    root       TEXT    NOT NULL PRIMARY KEY,
    fence      INTEGER NOT NULL,
    owner      TEXT,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
