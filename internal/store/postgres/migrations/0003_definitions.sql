CREATE TABLE definitions (
  tenant_id      uuid NOT NULL,
  kind           text COLLATE "C" NOT NULL,
  id             text COLLATE "C" NOT NULL,
  name           text NOT NULL,
  folded_name    text COLLATE "C" NOT NULL,
  application_id text COLLATE "C" NOT NULL,
  key_hash       bytea,
  created_by     text NOT NULL,
  created_at     bigint NOT NULL,
  modified_by    text NOT NULL,
  modified_at    bigint NOT NULL,
  version        bigint NOT NULL,
  contents       bytea,
  PRIMARY KEY (tenant_id, kind, id)
);
CREATE UNIQUE INDEX definitions_by_key ON definitions (tenant_id, key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX definitions_by_kind ON definitions (tenant_id, kind, created_at, id);
CREATE INDEX definitions_by_application ON definitions (tenant_id, application_id, kind, created_at, id) WHERE application_id <> '';
-- What is sealed does not compress.
ALTER TABLE definitions ALTER contents SET STORAGE EXTERNAL;

ALTER TABLE definitions ENABLE ROW LEVEL SECURITY;
ALTER TABLE definitions FORCE ROW LEVEL SECURITY;
CREATE POLICY one_tenant ON definitions USING (tenant_id = nullif(current_setting('tokenkeep.tenant_id', true), '')::uuid);
CREATE POLICY all_tenants ON definitions TO CURRENT_USER USING (true);
