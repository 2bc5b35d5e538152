-- What a log entry says beside: the name of the actor then, how much of a token
-- was shown, and why.
ALTER TABLE log ADD COLUMN actor_name TEXT NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN transform TEXT NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN reason TEXT NOT NULL DEFAULT '';
