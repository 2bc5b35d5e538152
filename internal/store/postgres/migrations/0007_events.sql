-- Servers that know number 3 go on working.
-- What happened to entities: ids and types only, never data. Servers that do not
-- know this number add none for their changes.
CREATE TABLE events (
  tenant_id   uuid NOT NULL,
  number      bigint NOT NULL,
  id          uuid NOT NULL,
  type        text COLLATE "C" NOT NULL,
  entity_type text COLLATE "C" NOT NULL,
  entity_id   text COLLATE "C" NOT NULL,
  containers  text COLLATE "C" NOT NULL,
  actor_id    text COLLATE "C" NOT NULL,
  actor_type  text COLLATE "C" NOT NULL,
  created_at  bigint NOT NULL,
  PRIMARY KEY (tenant_id, number)
);
CREATE INDEX events_by_entity ON events (tenant_id, entity_id, number);

-- Events that have no number. A transaction adds them with the log entries of its
-- changes. If it took numbers itself, all transactions of the tenant would wait
-- for each other. Transactions that change one entity follow each other, so the
-- ids of transactions, and positions within one, are in the order of the changes
-- of each entity.
CREATE TABLE event_queue (
  tenant_id   uuid NOT NULL,
  xid         bigint NOT NULL,
  position    bigint NOT NULL,
  id          uuid NOT NULL,
  type        text COLLATE "C" NOT NULL,
  entity_type text COLLATE "C" NOT NULL,
  entity_id   text COLLATE "C" NOT NULL,
  containers  text COLLATE "C" NOT NULL,
  actor_id    text COLLATE "C" NOT NULL,
  actor_type  text COLLATE "C" NOT NULL,
  created_at  bigint NOT NULL,
  PRIMARY KEY (tenant_id, xid, position, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- The number of the newest event of a tenant, and the number through which its
-- events were dispatched.
CREATE TABLE event_heads (
  tenant_id  uuid NOT NULL PRIMARY KEY,
  last       bigint NOT NULL,
  dispatched bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX event_heads_waiting ON event_heads (tenant_id) WHERE dispatched < last;

DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['events', 'event_queue', 'event_heads'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY one_tenant ON %I USING (tenant_id = nullif(current_setting(''tokenkeep.tenant_id'', true), '''')::uuid)', name);
    EXECUTE format('CREATE POLICY all_tenants ON %I TO CURRENT_USER USING (true)', name);
  END LOOP;
END $$;
