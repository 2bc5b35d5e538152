-- What happened to entities: ids and types only, never data. A transaction adds
-- them with the log entries of its changes.
CREATE TABLE events (
  tenant_id   BLOB NOT NULL,
  number      INTEGER NOT NULL,
  id          BLOB NOT NULL,
  type        TEXT NOT NULL,
  entity_type TEXT NOT NULL,
  entity_id   TEXT NOT NULL,
  containers  TEXT NOT NULL,
  actor_id    TEXT NOT NULL,
  actor_type  TEXT NOT NULL,
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, number)
) WITHOUT ROWID, STRICT;
CREATE INDEX events_by_entity ON events (tenant_id, entity_id, number);

-- The number of the newest event of a tenant, and the number through which its
-- events were dispatched.
CREATE TABLE event_heads (
  tenant_id  BLOB NOT NULL PRIMARY KEY,
  last       INTEGER NOT NULL,
  dispatched INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE INDEX event_heads_waiting ON event_heads (tenant_id) WHERE dispatched < last;
