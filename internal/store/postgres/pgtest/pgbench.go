package pgtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// pgbenchScript is a create as pgbench does it: the same rows in the same tables, in
// one transaction, by the same prepared statements as anybody would write, the
// counters in a slot for each client.
var pgbenchScript = `
\set tenant random(1, 8)
BEGIN;
WITH id AS (SELECT gen_random_uuid()::text AS id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at, ('00000000-0000-0000-0000-00000000000' || :tenant)::uuid AS tenant),
token AS (INSERT INTO tokens SELECT tenant, id, '` + strings.Repeat("0", 32) + `', 'card', '["/pci/high/"]', '\x` + strings.Repeat("00", 220) + `',
  '\x` + strings.Repeat("00", 180) + `', NULL, '\x` + strings.Repeat("00", 66) + `', NULL, 0, gen_random_uuid()::text, at, '', 0, 1 FROM id),
terms AS (INSERT INTO token_terms SELECT tenant, decode(md5(id || n) || md5(id), 'hex'), at, id, '` + strings.Repeat("0", 32) + `', NULL FROM id, generate_series(1, 2) AS n),
entry AS (INSERT INTO log SELECT tenant, at, gen_random_uuid(), '5e2d6b1c-8a1d-4a53-9d5a-0d6a2f6f7a11', 'application', '', 'card', id, 'create', 'success',
  'Token created', '0123456789abcdef0123', '192.0.2.17' FROM id RETURNING tenant_id, created_at, id)
INSERT INTO log_unsealed SELECT * FROM entry;
INSERT INTO token_groups VALUES (('00000000-0000-0000-0000-00000000000' || :tenant)::uuid, '` + strings.Repeat("0", 32) + `', 10000 + :client_id, 'card', '["/pci/high/"]', 1)
  ON CONFLICT (tenant_id, group_id, slot) DO UPDATE SET tokens = token_groups.tokens + 1;
INSERT INTO log_counts VALUES (('00000000-0000-0000-0000-00000000000' || :tenant)::uuid, 'card', 10000 + :client_id, 1)
  ON CONFLICT (tenant_id, entity_type, slot) DO UPDATE SET entries = log_counts.entries + 1;
COMMIT;
`

var ratePattern = regexp.MustCompile(`tps = ([0-9.]+)`)

// Pgbench creates tokens in a database with so many clients for so long, and
// returns how many a second.
func (c *Cluster) Pgbench(b *testing.B, url string, clients int, long time.Duration) float64 {
	b.Helper()
	return c.pgbench(b, pgbenchScript, url, clients, long)
}

// pgbenchRead reads one token by its id, as a view does. The id is that of any
// token: what differs is only where its pages are.
const pgbenchRead = `SELECT t.* FROM tokens t WHERE (tenant_id, id) = (SELECT tenant_id, id FROM tokens LIMIT 1);
`

// PgbenchRead reads tokens in a database with so many clients for so long, and
// returns how many a second.
func (c *Cluster) PgbenchRead(b *testing.B, url string, clients int, long time.Duration) float64 {
	b.Helper()
	return c.pgbench(b, pgbenchRead, url, clients, long)
}

func (c *Cluster) pgbench(b *testing.B, script, url string, clients int, long time.Duration) float64 {
	b.Helper()
	path := filepath.Join(c.Folder(), "bench.sql")
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		b.Fatal(err)
	}
	database, _, _ := strings.Cut(strings.TrimPrefix(url, "postgres:///"), "?")
	cmd := c.Command("pgbench", database, "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", "2", "-T", strconv.Itoa(int(long.Seconds())), "-f", path)
	cmd.Env = append(cmd.Env, "PGOPTIONS=-c search_path=tokenkeep")
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("pgbench: %v\n%s", err, out)
	}
	found := ratePattern.FindSubmatch(out)
	if found == nil {
		b.Fatalf("pgbench says no rate:\n%s", out)
	}
	rate, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		b.Fatal(err)
	}
	return rate
}
