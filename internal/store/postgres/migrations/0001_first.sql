-- Every table but installation belongs to tenants, and every key begins with
-- tenant_id. Ids, types, containers and times stand in clear; whatever came
-- from a tenant's users is sealed or a keyed hash. Times are microseconds.
-- Texts that are compared or sorted have the collation "C": by their bytes, and
-- not by a library of the machine that an upgrade may change.

CREATE TABLE tenants (
  tenant_id   uuid NOT NULL PRIMARY KEY,
  name        text NOT NULL,
  settings    text NOT NULL,
  secrets     bytea,
  created_by  text NOT NULL,
  created_at  bigint NOT NULL,
  modified_by text NOT NULL,
  modified_at bigint NOT NULL,
  deleting    boolean NOT NULL
);

-- Rewritten, and not vacuumed, when keysets were destroyed: a vacuum leaves
-- their bytes in the pages.
CREATE TABLE keysets (
  tenant_id   uuid NOT NULL,
  purpose     text COLLATE "C" NOT NULL,
  wrapped     bytea NOT NULL,
  kek         text NOT NULL,
  version     bigint NOT NULL,
  created_at  bigint NOT NULL,
  modified_at bigint NOT NULL,
  PRIMARY KEY (tenant_id, purpose)
) WITH (autovacuum_enabled = off);

CREATE TABLE marks (
  tenant_id uuid NOT NULL,
  name      text COLLATE "C" NOT NULL,
  value     bytea NOT NULL,
  PRIMARY KEY (tenant_id, name)
);

CREATE TABLE applications (
  tenant_id   uuid NOT NULL,
  id          text COLLATE "C" NOT NULL,
  name        text NOT NULL,
  type        text COLLATE "C" NOT NULL,
  permissions text NOT NULL,
  rules       bytea,
  expires_at  bigint NOT NULL,
  created_by  text NOT NULL,
  created_at  bigint NOT NULL,
  modified_by text NOT NULL,
  modified_at bigint NOT NULL,
  version     bigint NOT NULL,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX applications_by_time ON applications (tenant_id, created_at, id) INCLUDE (type);

CREATE TABLE application_keys (
  tenant_id      uuid NOT NULL,
  hash           bytea NOT NULL,
  application_id text COLLATE "C" NOT NULL,
  id             text COLLATE "C" NOT NULL,
  version        bigint NOT NULL,
  prefix         text NOT NULL,
  created_by     text NOT NULL,
  created_at     bigint NOT NULL,
  PRIMARY KEY (tenant_id, hash)
);
CREATE UNIQUE INDEX application_keys_by_application ON application_keys (tenant_id, application_id, id);

CREATE TABLE tokens (
  tenant_id      uuid NOT NULL,
  id             text COLLATE "C" NOT NULL,
  group_id       uuid NOT NULL,
  type           text NOT NULL,
  containers     text NOT NULL,
  data           bytea NOT NULL,
  details        bytea,
  short_lived    bytea,
  terms          bytea,
  expires_at     bigint,
  expires_offset bigint NOT NULL,
  created_by     text NOT NULL,
  created_at     bigint NOT NULL,
  modified_by    text NOT NULL,
  modified_at    bigint NOT NULL,
  version        bigint NOT NULL,
  PRIMARY KEY (tenant_id, id)
);
-- What is sealed does not compress.
ALTER TABLE tokens
  ALTER data SET STORAGE EXTERNAL, ALTER details SET STORAGE EXTERNAL, ALTER short_lived SET STORAGE EXTERNAL;
-- The list indexes hold all that a list must know of the rows it passes over.
CREATE INDEX tokens_by_time ON tokens (tenant_id, created_at, id) INCLUDE (group_id, expires_at);
CREATE INDEX tokens_by_group ON tokens (tenant_id, group_id, created_at, id) INCLUDE (expires_at);
-- For the sweep across tenants alone: as an expression it is nothing that the
-- planner could take for a tenant's own, which is the next.
CREATE INDEX tokens_by_expiry ON tokens ((expires_at + 0)) INCLUDE (tenant_id, id) WHERE expires_at + 0 IS NOT NULL;
CREATE INDEX tokens_expiring ON tokens (tenant_id, expires_at) INCLUDE (group_id) WHERE expires_at IS NOT NULL;

-- The number of tokens for each combination of type and containers, in slots:
-- no two connections write the same slot at the same time. Expired tokens count
-- until they are swept. A slot may be negative; only the sum means something.
CREATE TABLE token_groups (
  tenant_id  uuid NOT NULL,
  group_id   uuid NOT NULL,
  slot       integer NOT NULL,
  type       text NOT NULL,
  containers text NOT NULL,
  tokens     bigint NOT NULL,
  PRIMARY KEY (tenant_id, group_id, slot)
) WITH (fillfactor = 50);

CREATE TABLE token_terms (
  tenant_id  uuid NOT NULL,
  term       bytea NOT NULL,
  created_at bigint NOT NULL,
  id         text COLLATE "C" NOT NULL,
  group_id   uuid NOT NULL,
  expires_at bigint,
  PRIMARY KEY (tenant_id, term, created_at, id)
);

CREATE TABLE log (
  tenant_id      uuid NOT NULL,
  created_at     bigint NOT NULL,
  id             uuid NOT NULL,
  actor_id       text NOT NULL,
  actor_type     text NOT NULL,
  session_id     text NOT NULL,
  entity_type    text COLLATE "C" NOT NULL,
  entity_id      text COLLATE "C" NOT NULL,
  operation      text NOT NULL,
  outcome        text NOT NULL,
  message        text NOT NULL,
  trace_id       text NOT NULL,
  client_address text NOT NULL,
  PRIMARY KEY (tenant_id, created_at, id)
);
CREATE INDEX log_by_type ON log (tenant_id, entity_type, created_at, id);
CREATE INDEX log_by_entity ON log (tenant_id, entity_id, created_at, id);

CREATE TABLE log_counts (
  tenant_id   uuid NOT NULL,
  entity_type text COLLATE "C" NOT NULL,
  slot        integer NOT NULL,
  entries     bigint NOT NULL,
  PRIMARY KEY (tenant_id, entity_type, slot)
) WITH (fillfactor = 50);

-- Entries wait here until a batch seals them. Rows come and go quickly.
CREATE TABLE log_unsealed (
  tenant_id  uuid NOT NULL,
  created_at bigint NOT NULL,
  id         uuid NOT NULL,
  PRIMARY KEY (tenant_id, created_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE log_batches (
  tenant_id uuid NOT NULL,
  number    bigint NOT NULL,
  entries   bigint NOT NULL,
  leaves    bytea NOT NULL,
  root      bytea NOT NULL,
  link      bytea NOT NULL,
  signature bytea NOT NULL,
  sealed_at bigint NOT NULL,
  dropped   boolean NOT NULL,
  PRIMARY KEY (tenant_id, number)
);

-- Each transaction that changes something leaves its id here, so that its
-- outcome can be found out when the connection is lost over the commit. A row
-- that is not kept was put there by whoever asked, and keeps a transaction that
-- is still on its way from ever committing.
CREATE TABLE commits (
  tenant_id uuid NOT NULL,
  id        uuid NOT NULL,
  kept      boolean NOT NULL,
  made_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Keys that live an hour, apart from the data that they open. Open makes the
-- table logged when it is told to. Rewritten, and not vacuumed, like keysets.
CREATE UNLOGGED TABLE epoch_keys (
  tenant_id uuid NOT NULL,
  epoch     bigint NOT NULL,
  wrapped   bytea NOT NULL,
  PRIMARY KEY (tenant_id, epoch)
) WITH (autovacuum_enabled = off);
CREATE INDEX epoch_keys_by_epoch ON epoch_keys (epoch);

-- The second wall: whoever forgets the tenant in a statement sees and changes
-- nothing. It holds for the owner too; the owner has a policy of its own,
-- because sweeps and checks cross tenants.
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY[
    'tenants', 'keysets', 'marks', 'applications', 'application_keys', 'tokens', 'token_groups', 'token_terms',
    'log', 'log_counts', 'log_unsealed', 'log_batches', 'commits', 'epoch_keys'
  ] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY one_tenant ON %I USING (tenant_id = nullif(current_setting(''tokenkeep.tenant_id'', true), '''')::uuid)', name);
    EXECUTE format('CREATE POLICY all_tenants ON %I TO CURRENT_USER USING (true)', name);
  END LOOP;
END $$;
