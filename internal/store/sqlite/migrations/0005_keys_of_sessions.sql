-- The keys that created and authorized a session, for lists: what decides is
-- sealed. Empty in the rows of older releases.
ALTER TABLE sessions ADD COLUMN created_key_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN authorized_key_id TEXT NOT NULL DEFAULT '';
