-- Every table but installation belongs to tenants, and every key begins with
-- tenant_id. Ids, types, containers and times stand in clear; whatever came
-- from a tenant's users is sealed or a keyed hash. Times are microseconds.

CREATE TABLE installation (
  name  TEXT NOT NULL PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE tenants (
  tenant_id   BLOB NOT NULL PRIMARY KEY,
  name        TEXT NOT NULL,
  settings    TEXT NOT NULL,
  secrets     BLOB,
  created_by  TEXT NOT NULL,
  created_at  INTEGER NOT NULL,
  modified_by TEXT NOT NULL,
  modified_at INTEGER NOT NULL,
  deleting    INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE keysets (
  tenant_id   BLOB NOT NULL,
  purpose     TEXT NOT NULL,
  wrapped     BLOB NOT NULL,
  kek         TEXT NOT NULL,
  version     INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  modified_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, purpose)
) WITHOUT ROWID, STRICT;

CREATE TABLE marks (
  tenant_id BLOB NOT NULL,
  name      TEXT NOT NULL,
  value     BLOB NOT NULL,
  PRIMARY KEY (tenant_id, name)
) WITHOUT ROWID, STRICT;

CREATE TABLE applications (
  tenant_id   BLOB NOT NULL,
  id          TEXT NOT NULL,
  name        TEXT NOT NULL,
  type        TEXT NOT NULL,
  permissions TEXT NOT NULL,
  rules       BLOB,
  expires_at  INTEGER NOT NULL,
  created_by  TEXT NOT NULL,
  created_at  INTEGER NOT NULL,
  modified_by TEXT NOT NULL,
  modified_at INTEGER NOT NULL,
  version     INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, id)
) WITHOUT ROWID, STRICT;
CREATE INDEX applications_by_time ON applications (tenant_id, created_at, id, type);

CREATE TABLE application_keys (
  tenant_id      BLOB NOT NULL,
  hash           BLOB NOT NULL,
  application_id TEXT NOT NULL,
  id             TEXT NOT NULL,
  version        INTEGER NOT NULL,
  prefix         TEXT NOT NULL,
  created_by     TEXT NOT NULL,
  created_at     INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, hash)
) WITHOUT ROWID, STRICT;
CREATE UNIQUE INDEX application_keys_by_application ON application_keys (tenant_id, application_id, id);

-- A row id of its own keeps the sealed bytes in the order of arrival, so that
-- inserts append; only the small index of ids is written at random places.
CREATE TABLE tokens (
  row_id         INTEGER PRIMARY KEY,
  tenant_id      BLOB NOT NULL,
  id             TEXT NOT NULL,
  group_id       BLOB NOT NULL,
  type           TEXT NOT NULL,
  containers     TEXT NOT NULL,
  data           BLOB NOT NULL,
  details        BLOB,
  short_lived    BLOB,
  terms          BLOB,
  expires_at     INTEGER,
  expires_offset INTEGER NOT NULL,
  created_by     TEXT NOT NULL,
  created_at     INTEGER NOT NULL,
  modified_by    TEXT NOT NULL,
  modified_at    INTEGER NOT NULL,
  version        INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX tokens_by_id ON tokens (tenant_id, id);
-- The list indexes hold all that a list must know of the rows it passes over.
CREATE INDEX tokens_by_time ON tokens (tenant_id, created_at, id, group_id, expires_at);
CREATE INDEX tokens_by_group ON tokens (tenant_id, group_id, created_at, id, expires_at);
CREATE INDEX tokens_by_expiry ON tokens (expires_at, tenant_id, id) WHERE expires_at IS NOT NULL;
CREATE INDEX tokens_expiring ON tokens (tenant_id, expires_at, group_id, created_at, id) WHERE expires_at IS NOT NULL;

-- One row for each combination of type and containers, with the number of
-- tokens in it: expired ones count until they are swept.
CREATE TABLE token_groups (
  tenant_id  BLOB NOT NULL,
  group_id   BLOB NOT NULL,
  type       TEXT NOT NULL,
  containers TEXT NOT NULL,
  tokens     INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, group_id)
) WITHOUT ROWID, STRICT;

CREATE TABLE token_terms (
  tenant_id  BLOB NOT NULL,
  term       BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  id         TEXT NOT NULL,
  group_id   BLOB NOT NULL,
  expires_at INTEGER,
  PRIMARY KEY (tenant_id, term, created_at, id)
) WITHOUT ROWID, STRICT;

-- How many tokens have a term, by group. Only terms that many tokens have are
-- here, and those with all their groups; the others are counted when asked.
CREATE TABLE token_term_counts (
  tenant_id BLOB NOT NULL,
  term      BLOB NOT NULL,
  group_id  BLOB NOT NULL,
  tokens    INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, term, group_id)
) WITHOUT ROWID, STRICT;

CREATE TABLE log (
  tenant_id      BLOB NOT NULL,
  created_at     INTEGER NOT NULL,
  id             BLOB NOT NULL,
  actor_id       TEXT NOT NULL,
  actor_type     TEXT NOT NULL,
  session_id     TEXT NOT NULL,
  entity_type    TEXT NOT NULL,
  entity_id      TEXT NOT NULL,
  operation      TEXT NOT NULL,
  outcome        TEXT NOT NULL,
  message        TEXT NOT NULL,
  trace_id       TEXT NOT NULL,
  client_address TEXT NOT NULL,
  PRIMARY KEY (tenant_id, created_at, id)
) WITHOUT ROWID, STRICT;
CREATE INDEX log_by_type ON log (tenant_id, entity_type, created_at, id);
CREATE INDEX log_by_entity ON log (tenant_id, entity_id, created_at, id);

CREATE TABLE log_counts (
  tenant_id   BLOB NOT NULL,
  entity_type TEXT NOT NULL,
  entries     INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, entity_type)
) WITHOUT ROWID, STRICT;

-- Entries wait here until a batch seals them: small, and always in the cache.
CREATE TABLE log_unsealed (
  tenant_id  BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  id         BLOB NOT NULL,
  PRIMARY KEY (tenant_id, created_at, id)
) WITHOUT ROWID, STRICT;

CREATE TABLE log_batches (
  tenant_id BLOB NOT NULL,
  number    INTEGER NOT NULL,
  entries   INTEGER NOT NULL,
  leaves    BLOB NOT NULL,
  root      BLOB NOT NULL,
  link      BLOB NOT NULL,
  signature BLOB NOT NULL,
  sealed_at INTEGER NOT NULL,
  dropped   INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, number)
) WITHOUT ROWID, STRICT;
