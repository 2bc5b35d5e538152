package pgtest

// Tomorrow is a migration as the next release may bring it: every table has a
// column more, with a default, and an index more, and there is a table more.
// Servers that do not know it go on working.
const Tomorrow = `-- Servers that know number 1 go on working.
DO $$
DECLARE name text;
BEGIN
  FOR name IN SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() LOOP
    EXECUTE format('ALTER TABLE %I ADD COLUMN made_tomorrow text NOT NULL DEFAULT ''x''', name);
  END LOOP;
END $$;
CREATE INDEX tokens_of_tomorrow ON tokens (tenant_id, made_tomorrow, id);
CREATE TABLE tomorrow (
  tenant_id uuid NOT NULL,
  id        text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, id)
);
ALTER TABLE tomorrow ENABLE ROW LEVEL SECURITY;
ALTER TABLE tomorrow FORCE ROW LEVEL SECURITY;
CREATE POLICY one_tenant ON tomorrow USING (tenant_id = nullif(current_setting('tokenkeep.tenant_id', true), '')::uuid);
CREATE POLICY all_tenants ON tomorrow TO CURRENT_USER USING (true);
`
