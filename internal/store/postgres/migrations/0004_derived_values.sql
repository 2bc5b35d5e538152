-- Servers that know number 3 go on working.
-- The value of version at which the fingerprint and the terms were last written
-- in today's form. A constant default rewrites nothing. The index that finds
-- tokens whose values are older, tokens_outdated, is in lateIndexes: it reads
-- the whole table, and this transaction locks out all who use that.
ALTER TABLE tokens ADD COLUMN derived_at bigint NOT NULL DEFAULT 0;
