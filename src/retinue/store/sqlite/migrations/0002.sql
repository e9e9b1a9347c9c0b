-- Version 2: whole trees are found, and what only a deleted one used.

CREATE INDEX session_by_root ON session (root);
CREATE INDEX event_by_body   ON event (body) WHERE body IS NOT NULL;
