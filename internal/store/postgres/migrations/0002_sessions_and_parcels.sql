CREATE TABLE sessions (
  tenant_id     uuid NOT NULL,
  id            text COLLATE "C" NOT NULL,
  key_hash      bytea NOT NULL,
  nonce_hash    bytea NOT NULL,
  prefix        text NOT NULL,
  sealed_grant  bytea,
  created_by    text NOT NULL,
  created_at    bigint NOT NULL,
  authorized_by text NOT NULL,
  authorized_at bigint NOT NULL,
  expires_at    bigint NOT NULL,
  version       bigint NOT NULL,
  PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX sessions_by_key ON sessions (tenant_id, key_hash);
CREATE UNIQUE INDEX sessions_by_nonce ON sessions (tenant_id, nonce_hash);
CREATE INDEX sessions_by_time ON sessions (tenant_id, created_at, id) INCLUDE (expires_at);
-- For the sweep across tenants alone, as that of tokens.
CREATE INDEX sessions_by_expiry ON sessions ((expires_at + 0)) INCLUDE (tenant_id, id);

-- Rows come and go quickly.
CREATE TABLE parcels (
  tenant_id  uuid NOT NULL,
  kind       text COLLATE "C" NOT NULL,
  id         text COLLATE "C" NOT NULL,
  group_name text COLLATE "C" NOT NULL,
  owner      text NOT NULL,
  contents   bytea,
  epoch      bigint NOT NULL,
  created_at bigint NOT NULL,
  due_at     bigint,
  expires_at bigint NOT NULL,
  attempts   bigint NOT NULL,
  version    bigint NOT NULL,
  PRIMARY KEY (tenant_id, kind, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX parcels_by_kind ON parcels (tenant_id, kind, created_at, id);
-- Most parcels belong to nothing, and cost nothing here.
CREATE INDEX parcels_by_group ON parcels (tenant_id, kind, group_name, created_at, id) WHERE group_name <> '';
-- For the sweeps across tenants alone.
CREATE INDEX parcels_by_expiry ON parcels ((expires_at + 0)) INCLUDE (tenant_id, kind, id);
CREATE INDEX parcels_by_due ON parcels ((due_at + 0)) INCLUDE (tenant_id, kind, id) WHERE due_at + 0 IS NOT NULL;

-- What is sealed does not compress.
ALTER TABLE sessions ALTER sealed_grant SET STORAGE EXTERNAL;
ALTER TABLE parcels ALTER contents SET STORAGE EXTERNAL;

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['sessions', 'parcels'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY one_tenant ON %I USING (tenant_id = nullif(current_setting(''tokenkeep.tenant_id'', true), '''')::uuid)', name);
    EXECUTE format('CREATE POLICY all_tenants ON %I TO CURRENT_USER USING (true)', name);
  END LOOP;
END $$;
