-- The value of version at which the fingerprint and the terms were last written
-- in today's form. The column is added without a rewrite; because the table is
-- STRICT, SQLite reads its rows once meanwhile, and once more for the index.
ALTER TABLE tokens ADD COLUMN derived_at INTEGER NOT NULL DEFAULT 0;
-- Holds only tokens that an older release wrote: it is empty when their values
-- have been recomputed. The columns of the condition are in it so that SQLite,
-- which checks the condition again, does not read the rows.
CREATE INDEX tokens_outdated ON tokens (tenant_id, id, derived_at, version) WHERE derived_at <> version;
