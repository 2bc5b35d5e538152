-- Servers that know number 3 go on working.
-- Counters whose number of rows does not depend on how many containers a tenant
-- has. They change in the transaction that changes token_groups. Servers that do
-- not know this number change token_groups only: what they added there is the
-- difference between tokens and counted, which recount carries over.
ALTER TABLE token_groups ADD COLUMN counted bigint NOT NULL DEFAULT 0;

-- The number of tokens of each type, in slots as in token_groups.
CREATE TABLE token_types (
  tenant_id uuid NOT NULL,
  type      text COLLATE "C" NOT NULL,
  slot      integer NOT NULL,
  tokens    bigint NOT NULL,
  PRIMARY KEY (tenant_id, type, slot)
) WITH (fillfactor = 50);

-- The containers of each group.
CREATE TABLE token_containers (
  tenant_id uuid NOT NULL,
  container text COLLATE "C" NOT NULL,
  group_id  uuid NOT NULL,
  PRIMARY KEY (tenant_id, container, group_id)
);

-- How many different containers, and groups, a tenant has. Only a transaction
-- in which a group comes or goes writes here.
CREATE TABLE container_counts (
  tenant_id  uuid NOT NULL PRIMARY KEY,
  containers bigint NOT NULL,
  groups     bigint NOT NULL
);

-- Groups that may have no tokens left: those with a slot that has none or fewer.
CREATE TABLE token_groups_emptied (
  tenant_id uuid NOT NULL,
  group_id  uuid NOT NULL,
  slot      integer NOT NULL,
  PRIMARY KEY (tenant_id, group_id, slot)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['token_types', 'token_containers', 'container_counts', 'token_groups_emptied'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY one_tenant ON %I USING (tenant_id = nullif(current_setting(''tokenkeep.tenant_id'', true), '''')::uuid)', name);
    EXECUTE format('CREATE POLICY all_tenants ON %I TO CURRENT_USER USING (true)', name);
  END LOOP;
END $$;
