-- What a log entry says beside: the name of the actor then, how much of a token
-- was shown, and why. A server that does not know these columns would sign
-- batches that do not cover them, so older servers do not go on.
ALTER TABLE log ADD COLUMN actor_name text NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN transform text NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN reason text NOT NULL DEFAULT '';

-- How many entries of a kind an actor made within a bucket of time. They change
-- in the transaction that seals the entries.
CREATE TABLE log_activity (
  tenant_id uuid NOT NULL,
  width     bigint NOT NULL,
  at        bigint NOT NULL,
  actor_id  text COLLATE "C" NOT NULL,
  kind      text COLLATE "C" NOT NULL,
  entries   bigint NOT NULL,
  PRIMARY KEY (tenant_id, width, at, actor_id, kind)
) WITH (fillfactor = 70);
ALTER TABLE log_activity ENABLE ROW LEVEL SECURITY;
ALTER TABLE log_activity FORCE ROW LEVEL SECURITY;
CREATE POLICY one_tenant ON log_activity USING (tenant_id = nullif(current_setting('tokenkeep.tenant_id', true), '')::uuid);
CREATE POLICY all_tenants ON log_activity TO CURRENT_USER USING (true);
