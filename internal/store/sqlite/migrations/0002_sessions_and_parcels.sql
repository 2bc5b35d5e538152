-- Sealed bytes stand in the order of arrival, as those of tokens do.
CREATE TABLE sessions (
  row_id        INTEGER PRIMARY KEY,
  tenant_id     BLOB NOT NULL,
  id            TEXT NOT NULL,
  key_hash      BLOB NOT NULL,
  nonce_hash    BLOB NOT NULL,
  prefix        TEXT NOT NULL,
  sealed_grant  BLOB,
  created_by    TEXT NOT NULL,
  created_at    INTEGER NOT NULL,
  authorized_by TEXT NOT NULL,
  authorized_at INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL,
  version       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX sessions_by_id ON sessions (tenant_id, id);
CREATE UNIQUE INDEX sessions_by_key ON sessions (tenant_id, key_hash);
CREATE UNIQUE INDEX sessions_by_nonce ON sessions (tenant_id, nonce_hash);
CREATE INDEX sessions_by_time ON sessions (tenant_id, created_at, id, expires_at);
CREATE INDEX sessions_by_expiry ON sessions (expires_at, tenant_id, id);

CREATE TABLE parcels (
  row_id     INTEGER PRIMARY KEY,
  tenant_id  BLOB NOT NULL,
  kind       TEXT NOT NULL,
  id         TEXT NOT NULL,
  group_name TEXT NOT NULL,
  owner      TEXT NOT NULL,
  contents   BLOB,
  epoch      INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  due_at     INTEGER,
  expires_at INTEGER NOT NULL,
  attempts   INTEGER NOT NULL,
  version    INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX parcels_by_id ON parcels (tenant_id, kind, id);
CREATE INDEX parcels_by_kind ON parcels (tenant_id, kind, created_at, id);
-- Most parcels belong to nothing, and cost nothing here.
CREATE INDEX parcels_by_group ON parcels (tenant_id, kind, group_name, created_at, id) WHERE group_name <> '';
CREATE INDEX parcels_by_expiry ON parcels (expires_at, tenant_id, kind, id);
CREATE INDEX parcels_by_due ON parcels (due_at, tenant_id, kind, id) WHERE due_at IS NOT NULL;
