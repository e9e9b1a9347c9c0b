-- The statements of the store, by name. A statement goes from its `-- name:` line to the next one.

-- name: find_session
SELECT key, root FROM session WHERE id = ?

-- name: fence
SELECT fence FROM lease WHERE root = ?

-- name: create_session
INSERT INTO session (id, root, parent, is_delegated, created_at, header, last_event_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?5)
ON CONFLICT (id) DO NOTHING RETURNING key

-- name: extend_log
UPDATE session SET length = length + ?3, last_event_at = ?4 WHERE key = ?1 AND length = ?2

-- name: extend_log_and_work
-- 0 closes, null leaves as it is.
UPDATE session SET length = length + ?3, last_event_at = ?4,
    open_turn = iif(?5 IS NULL, open_turn, nullif(?5, 0)),
    open_activation = iif(?6 IS NULL, open_activation, nullif(?6, 0))
WHERE key = ?1 AND length = ?2

-- name: length
SELECT length FROM session WHERE key = ?

-- name: append_event
INSERT INTO event (session, seq, time, type, ignorable, body, data) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: find_body
SELECT key FROM body WHERE hash = ?

-- name: add_body
INSERT INTO body (hash, data) VALUES (?, ?) RETURNING key

-- name: append_message
INSERT INTO message (id, session, ord, target, wake, accepted_at, source, data, usage, kind, log_length)
VALUES (?1, ?2, (SELECT coalesce(max(ord), -1) + 1 FROM message WHERE session = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (id) DO NOTHING RETURNING ord

-- name: prepend_message
INSERT INTO message (id, session, ord, target, wake, accepted_at, source, data, usage, kind, log_length)
VALUES (?1, ?2, (SELECT coalesce(min(ord), 1) - 1 FROM message WHERE session = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (id) DO NOTHING RETURNING ord

-- name: put_message
INSERT INTO message (id, session, target, wake, accepted_at, source, data, usage, kind, log_length, ord, parked)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (id) DO NOTHING RETURNING ord

-- name: find_message
SELECT session, ord, state, kind, data FROM message WHERE id = ?

-- name: claim_message
UPDATE message SET state = 'claimed', turn = ?3, parked = 0 WHERE id = ?1 AND session = ?2 AND state = 'pending'

-- name: withdraw_message
UPDATE message SET state = 'withdrawn', reason = ?3, parked = 0 WHERE id = ?1 AND session = ?2 AND state = 'pending'

-- name: replace_message
UPDATE message SET state = 'withdrawn', reason = 'replaced', parked = 0
WHERE id = ?1 AND session = ?2 AND state = 'pending' RETURNING ord

-- name: is_parked
SELECT parked FROM message WHERE id = ?

-- name: park_message
UPDATE message SET parked = 1 WHERE id = ?1 AND session = ?2 AND state = 'pending'

-- name: hush_message
UPDATE message SET wake = 0 WHERE id = ?1 AND session = ?2 AND state = 'pending'

-- name: unpark_messages
UPDATE message SET parked = 0 WHERE session = ? AND state = 'pending' AND parked = 1

-- name: is_busy
SELECT 1 FROM message WHERE session = ?1 AND state = 'pending' AND wake = 1 AND parked = 0
UNION ALL
SELECT 1 FROM session WHERE parent = ?2 AND is_delegated = 1 AND open_activation IS NOT NULL
LIMIT 1

-- name: read_session
SELECT key, header, root, length FROM session WHERE id = ?

-- name: read_events
SELECT seq, time, type, coalesce(event.data, body.data), ignorable
FROM event LEFT JOIN body ON body.key = event.body WHERE session = ? ORDER BY seq

-- name: read_pending
SELECT id, ord, state, target, wake, parked, accepted_at, turn, reason, data, usage, kind, log_length
FROM message WHERE session = ? AND state = 'pending' ORDER BY ord, key

-- name: read_messages
SELECT id, ord, state, target, wake, parked, accepted_at, turn, reason, data, usage, kind, log_length
FROM message WHERE session = ? ORDER BY ord, key

-- name: arrivals
-- In the order of their insertion.
SELECT session.id, message.id, ord, state, target, wake, parked, accepted_at, turn, reason, data, usage, kind, log_length
FROM message JOIN session ON session.key = message.session
WHERE state = 'pending' AND root IN (SELECT value FROM json_each(?1)) ORDER BY message.key

-- name: summary
SELECT id, header, root, length, last_event_at, open_turn,
    (SELECT count(*) FROM message WHERE message.session = session.key AND state = 'pending' AND kind = 'message')
FROM session WHERE id = ?

-- name: roots
SELECT id, header, root, length, last_event_at, open_turn,
    (SELECT count(*) FROM message WHERE message.session = session.key AND state = 'pending' AND kind = 'message')
FROM session WHERE is_delegated = 0 ORDER BY created_at DESC, id

-- name: children
SELECT id, header, root, length, last_event_at, open_turn,
    (SELECT count(*) FROM message WHERE message.session = session.key AND state = 'pending' AND kind = 'message')
FROM session WHERE parent = ? ORDER BY key

-- name: tree
SELECT id, header, root, length, last_event_at, open_turn,
    (SELECT count(*) FROM message WHERE message.session = session.key AND state = 'pending' AND kind = 'message')
FROM session WHERE root = ? ORDER BY key

-- name: read_tree
SELECT key, id, header, length FROM session WHERE root = ? ORDER BY key

-- name: bodies_of_tree
SELECT DISTINCT body FROM event WHERE session IN (SELECT key FROM session WHERE root = ?) AND body IS NOT NULL

-- name: remove_events
DELETE FROM event WHERE session IN (SELECT key FROM session WHERE root = ?)

-- name: remove_messages
DELETE FROM message WHERE session IN (SELECT key FROM session WHERE root = ?)

-- name: remove_sessions
DELETE FROM session WHERE root = ?

-- name: remove_body
DELETE FROM body WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM event WHERE body = ?1)

-- name: resolve
SELECT id FROM session WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT 4

-- name: owing
SELECT id FROM session WHERE key IN (
    SELECT key FROM session WHERE root = ?1 AND (open_turn IS NOT NULL OR open_activation IS NOT NULL)
    UNION
    SELECT session FROM message WHERE state = 'pending' AND wake = 1 AND parked = 0
) AND root = ?1 ORDER BY key

-- name: read_lease
SELECT fence, owner, expires_at FROM lease WHERE root = ?

-- name: is_leased
SELECT 1 FROM lease WHERE root = ? AND owner = ? AND fence = ?

-- name: take_lease
INSERT INTO lease (root, fence, owner, expires_at) VALUES (?1, 1, ?2, ?3)
ON CONFLICT (root) DO UPDATE SET fence = fence + 1, owner = ?2, expires_at = ?3 RETURNING fence

-- name: renew_lease
UPDATE lease SET expires_at = ?4 WHERE root = ?1 AND owner = ?2 AND fence = ?3

-- name: free_lease
UPDATE lease SET owner = NULL, fence = fence + 1 WHERE root = ?1 AND owner = ?2 AND fence = ?3

-- name: free_all_leases
UPDATE lease SET owner = NULL, fence = fence + 1 WHERE owner = ?

-- name: all_roots
SELECT DISTINCT root FROM session ORDER BY root

-- name: inspect_tree
SELECT key, id, header, length, open_turn, open_activation FROM session WHERE root = ? ORDER BY key

-- name: orphans
SELECT 'events', count(*) FROM event WHERE session NOT IN (SELECT key FROM session)
UNION ALL
SELECT 'messages', count(*) FROM message WHERE session NOT IN (SELECT key FROM session)
UNION ALL
SELECT 'events whose content is gone', count(*) FROM event WHERE data IS NULL AND body NOT IN (SELECT key FROM body)
