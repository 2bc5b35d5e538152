-- What a log entry says beside: the name of the actor then, how much of a token
-- was shown, and why. A server that does not know these columns would sign
-- batches that do not cover them, so older servers do not go on.
ALTER TABLE log ADD COLUMN actor_name text NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN transform text NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN reason text NOT NULL DEFAULT '';
