-- Version 3: rows of other kinds than messages, which other processes leave to interrupt and to stop.

ALTER TABLE message ADD COLUMN kind TEXT NOT NULL DEFAULT 'message';
ALTER TABLE message ADD COLUMN log_length INTEGER NOT NULL DEFAULT 0;  -- of the session, when a control row was asked
