-- Who acted, by name, and why: of members, who are definitions, and whose
-- sign-ins and links are parcels. Older servers must not go on working: they
-- would sign entries without these columns, and overlook rules that require a
-- reason.
ALTER TABLE log ADD COLUMN actor_name text NOT NULL DEFAULT '', ADD COLUMN reason text NOT NULL DEFAULT '';
