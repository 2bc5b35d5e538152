-- Servers that know number 3 go on working.
-- The keys that created and authorized a session, for lists: what decides is
-- sealed. Empty in the rows of older releases.
ALTER TABLE sessions
  ADD COLUMN created_key_id text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN authorized_key_id text COLLATE "C" NOT NULL DEFAULT '';
