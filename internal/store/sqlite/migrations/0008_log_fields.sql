-- What a log entry says beside: the name of the actor then, how much of a token
-- was shown, and why.
ALTER TABLE log ADD COLUMN actor_name TEXT NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN transform TEXT NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN reason TEXT NOT NULL DEFAULT '';

-- How many entries of a kind an actor made within a bucket of time. They change
-- in the transaction that seals the entries.
CREATE TABLE log_activity (
  tenant_id BLOB NOT NULL,
  width     INTEGER NOT NULL,
  at        INTEGER NOT NULL,
  actor_id  TEXT NOT NULL,
  kind      TEXT NOT NULL,
  entries   INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, width, at, actor_id, kind)
) WITHOUT ROWID, STRICT;
