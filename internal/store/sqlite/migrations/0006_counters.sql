-- Counters whose number of rows does not depend on how many containers a tenant
-- has. They change in the transaction that changes token_groups.

-- The number of tokens of each type.
CREATE TABLE token_types (
  tenant_id BLOB NOT NULL,
  type      TEXT NOT NULL,
  tokens    INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, type)
) WITHOUT ROWID, STRICT;

-- The containers of each group.
CREATE TABLE token_containers (
  tenant_id BLOB NOT NULL,
  container TEXT NOT NULL,
  group_id  BLOB NOT NULL,
  PRIMARY KEY (tenant_id, container, group_id)
) WITHOUT ROWID, STRICT;

-- How many different containers, and groups, a tenant has.
CREATE TABLE container_counts (
  tenant_id  BLOB NOT NULL PRIMARY KEY,
  containers INTEGER NOT NULL,
  groups     INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- A group goes with its last token; older releases left it.
DELETE FROM token_groups WHERE tokens = 0;
INSERT INTO token_types SELECT tenant_id, type, sum(tokens) FROM token_groups GROUP BY tenant_id, type;
INSERT INTO token_containers SELECT DISTINCT g.tenant_id, c.value, g.group_id FROM token_groups AS g, json_each(g.containers) AS c;
INSERT INTO container_counts SELECT tenant_id, count(DISTINCT container), count(DISTINCT group_id) FROM token_containers GROUP BY tenant_id;
