-- The contents come last, so that a list passes over them unread.
CREATE TABLE definitions (
  row_id         INTEGER PRIMARY KEY,
  tenant_id      BLOB NOT NULL,
  kind           TEXT NOT NULL,
  id             TEXT NOT NULL,
  name           TEXT NOT NULL,
  folded_name    TEXT NOT NULL,
  application_id TEXT NOT NULL,
  key_hash       BLOB,
  created_by     TEXT NOT NULL,
  created_at     INTEGER NOT NULL,
  modified_by    TEXT NOT NULL,
  modified_at    INTEGER NOT NULL,
  version        INTEGER NOT NULL,
  contents       BLOB
) STRICT;
CREATE UNIQUE INDEX definitions_by_id ON definitions (tenant_id, kind, id);
CREATE UNIQUE INDEX definitions_by_key ON definitions (tenant_id, key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX definitions_by_kind ON definitions (tenant_id, kind, created_at, id);
CREATE INDEX definitions_by_application ON definitions (tenant_id, application_id, kind, created_at, id) WHERE application_id <> '';
