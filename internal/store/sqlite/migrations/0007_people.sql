-- Who acted, by name, and why: of members, who are definitions, and whose
-- sign-ins and links are parcels.
ALTER TABLE log ADD COLUMN actor_name TEXT NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN reason TEXT NOT NULL DEFAULT '';
