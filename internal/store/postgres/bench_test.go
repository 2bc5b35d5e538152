package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// measured is how long each side of a comparison runs.
const measured = 3 * time.Second

// script is a create as pgbench does it: the same rows in the same tables, in
// one transaction, by the same prepared statements as anybody would write, the
// counters in a slot for each client.
var script = `
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

// pgbench runs the script on a database and returns transactions a second.
func pgbench(b *testing.B, c *pgtest.Cluster, url string, clients int) float64 {
	b.Helper()
	path := filepath.Join(c.Folder(), "create.sql")
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		b.Fatal(err)
	}
	cmd := c.Command("pgbench", inURL(url), "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", "2", "-T", strconv.Itoa(int(measured.Seconds())), "-f", path)
	cmd.Env = append(cmd.Env, "PGOPTIONS=-c search_path=tokenkeep")
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("pgbench: %v\n%s", err, out)
	}
	found := ratePattern.FindSubmatch(out)
	if found == nil {
		b.Fatalf("pgbench says no rate:\n%s", out)
	}
	tps, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		b.Fatal(err)
	}
	return tps
}

// BenchmarkInsertToken is a durable token with two search terms and its log
// entry: gathered, each update with a commit of its own, and by pgbench.
func BenchmarkInsertToken(b *testing.B) {
	c := pgtest.Start(b, pgtest.Options{})
	for _, writers := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			for b.Loop() {
				url := c.Database(b)
				var rates [2]float64
				for i, o := range []postgres.Options{{}, {Ungathered: true}} {
					s := open(b, url, o)
					rates[i] = storetest.Rate(b, writers, measured, func(n int64) error { return storetest.InsertToken(b.Context(), s, n) })
					_ = s.Close()
				}
				limit := pgbench(b, c, url, writers)
				b.ReportMetric(rates[0], "gathered/s")
				b.ReportMetric(rates[1], "single/s")
				b.ReportMetric(limit, "pgbench/s")
				b.ReportMetric(rates[0]/limit, "ratio")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// BenchmarkReadToken is a token by its id: in a view, and in an update with a
// durable log entry, as a request does it.
func BenchmarkReadToken(b *testing.B) {
	c := pgtest.Start(b, pgtest.Options{})
	s := open(b, c.Database(b), postgres.Options{})
	const count = 20_000
	ids := storetest.InsertMany(b, s, storetest.BenchTenant(0), count)
	for _, readers := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			for b.Loop() {
				read := func(tx store.Tx, n int64) error {
					_, err := tx.Token(b.Context(), ids[n*7919%count])
					return err
				}
				b.ReportMetric(storetest.Rate(b, readers, measured, func(n int64) error {
					return s.View(b.Context(), storetest.BenchTenant(0), func(tx store.Tx) error { return read(tx, n) })
				}), "views/s")
				b.ReportMetric(storetest.Rate(b, readers, measured, func(n int64) error {
					e := storetest.SomeEntry(ids[n*7919%count])
					return s.Update(b.Context(), storetest.BenchTenant(0), func(tx store.Tx) error {
						if err := read(tx, n); err != nil {
							return err
						}
						return tx.AppendLog(b.Context(), e)
					})
				}), "logged/s")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}
