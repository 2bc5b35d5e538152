package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

func TestNothingOfTheURLIsInAnError(t *testing.T) {
	database := pgtest.Database(t)
	_, host, _ := strings.Cut(database, "host=")
	secrets := []string{"hunter2", "somebody", "some_database", "some.host.invalid"}
	for name, url := range map[string]string{
		"no URL at all":        "hunter2 somebody",
		"a broken URL":         "postgres://somebody:hunter2@some.host.invalid:notaport/some_database",
		"a setting unknown":    "postgres://somebody:hunter2@some.host.invalid/some_database?sslmode=hunter2",
		"a host unknown":       "postgres://somebody:hunter2@some.host.invalid/some_database?connect_timeout=1",
		"nobody listens":       "postgres://somebody:hunter2@127.0.0.1:1/some_database",
		"a role unknown":       "postgres:///" + inURL(database) + "?user=somebody&password=hunter2&host=" + host,
		"a database unknown":   "postgres:///some_database?user=postgres&password=hunter2&host=" + host,
		"a parameter unknown":  database + "&hunter2=somebody",
		"a TLS file not there": "postgres://somebody:hunter2@127.0.0.1/some_database?sslmode=verify-full&sslrootcert=/some_database/hunter2",
	} {
		var log bytes.Buffer
		s, err := postgres.Open(t.Context(), url, postgres.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err == nil {
			_ = s.Close()
			t.Errorf("Open with %s: got no error", name)
			continue
		}
		for _, secret := range secrets {
			if strings.Contains(err.Error()+fmt.Sprintf("%+v %#v", err, err)+log.String(), secret) {
				t.Errorf("Open with %s repeats %q: %v", name, secret, err)
			}
		}
	}
}

func TestNoValueIsInAnError(t *testing.T) {
	s := open(t, pgtest.Database(t), postgres.Options{})
	ctx := t.Context()
	const value = "4242424242424242"
	tok := storetest.SomeToken()
	tok.ID = value
	if err := s.Update(ctx, tenantA, func(tx store.Tx) error { return tx.InsertToken(ctx, tok) }); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(tx store.Tx) error{
		"a key that is taken":      func(tx store.Tx) error { return tx.InsertToken(ctx, tok) },
		"a text with a NUL":        func(tx store.Tx) error { return tx.PutMark(ctx, value+"\x00", []byte("x")) },
		"a text that is not UTF-8": func(tx store.Tx) error { return tx.InsertApplication(ctx, store.Application{ID: value + "\xff"}) },
		"a key that is too long":   func(tx store.Tx) error { return tx.PutMark(ctx, random(4000)+value, []byte("x")) },
		"a group that is none": func(tx store.Tx) error {
			_, err := tx.CountTokens(ctx, store.TokenFilter{Groups: store.OnlyGroups(value)})
			return err
		},
		"an entry that is none": func(tx store.Tx) error { return tx.AppendLog(ctx, store.LogEntry{ID: value}) },
	} {
		err := s.Update(ctx, tenantA, do)
		var driver *pgconn.PgError // which has the statement's values in its details
		if err == nil || strings.Contains(err.Error(), value) || errors.As(err, &driver) {
			t.Errorf("%s: got error %v, want one of ours without the value", name, err)
		}
	}
	// What no row can have, no row has.
	if err := s.View(ctx, tenantA, func(tx store.Tx) error {
		_, errToken := tx.Token(ctx, value+"\x00")
		_, errMark := tx.Mark(ctx, value+"\xff")
		list, err := tx.Tokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups(), IDs: []string{"\x00", value}}, store.Page{Limit: 10})
		if !errors.Is(errToken, store.ErrNotFound) || !errors.Is(errMark, store.ErrNotFound) || len(list) != 1 {
			t.Errorf("texts that cannot be stored: got errors %v, %v and %d tokens; want %v, twice, and 1", errToken, errMark, len(list), store.ErrNotFound)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// random returns text that does not compress.
func random(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(storetest.SomeToken().ID)
	}
	return b.String()
}

// TestAnOlderStoreIsBroughtUpToDate begins with what each earlier release left.
func TestAnOlderStoreIsBroughtUpToDate(t *testing.T) {
	texts, err := postgres.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < len(texts); n++ {
		database := pgtest.Database(t)
		administer(t, database, "CREATE SCHEMA tokenkeep", `CREATE TABLE tokenkeep.installation (name text COLLATE "C" NOT NULL PRIMARY KEY, value bytea NOT NULL)`)
		administer(t, database+"&search_path=tokenkeep", texts[:n]...)
		administer(t, database, fmt.Sprintf("INSERT INTO tokenkeep.installation VALUES ('schema', '%d')", n),
			"INSERT INTO tokenkeep.marks VALUES ('"+tenantA+"', 'kept', 'value')")
		s := openBare(t, database, postgres.Options{})
		fill(t, s, tenantB)
		tables, _ := postgres.Tables()
		for _, table := range tables {
			if rows, err := s.AsTenant(t.Context(), tenantB, "SELECT 1 FROM "+table); rows == 0 || err != nil {
				t.Errorf("from number %d: a request sees %d rows of %s, error %v; want some", n, rows, table, err)
			}
		}
		if err := s.View(t.Context(), tenantA, func(tx store.Tx) error {
			value, err := tx.Mark(t.Context(), "kept")
			if string(value) != "value" {
				t.Errorf("from number %d: the mark is %q, want it kept", n, value)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if found, err := s.Check(t.Context(), nil); len(found) > 0 || err != nil {
			t.Errorf("from number %d: Check: got %q, error %v; want nothing", n, found, err)
		}
	}
}

func TestAServerOpensWhatItKnows(t *testing.T) {
	storetest.Long(t)
	known, err := postgres.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	newer := fmt.Sprintf("UPDATE tokenkeep.installation SET value = '%d' WHERE name = 'schema'", len(known)+1)
	for name, c := range map[string]struct {
		before []string
		want   error
	}{
		"a schema of this release":                     {nil, nil},
		"a newer schema with room for this release":    {[]string{newer}, nil},
		"a newer schema without room for this release": {[]string{newer, fmt.Sprintf("UPDATE tokenkeep.installation SET value = '%d' WHERE name = 'oldest'", len(known)+1)}, store.ErrNewerSchema},
		"a newer schema that does not say":             {[]string{newer, "DELETE FROM tokenkeep.installation WHERE name = 'oldest'"}, store.ErrNewerSchema},
		"this schema when it did not say":              {[]string{"DELETE FROM tokenkeep.installation WHERE name = 'oldest'"}, nil},
		"a number that is none":                        {[]string{"UPDATE tokenkeep.installation SET value = 'x' WHERE name = 'schema'"}, store.ErrDamaged},
		"no number of servers":                         {[]string{"UPDATE tokenkeep.installation SET value = '0' WHERE name = 'oldest'"}, store.ErrDamaged},
		"no number":                                    {[]string{"DELETE FROM tokenkeep.installation WHERE name = 'schema'"}, store.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			database := pgtest.Database(t)
			if err := open(t, database, postgres.Options{}).Close(); err != nil {
				t.Fatal(err)
			}
			administer(t, database, c.before...)
			s, err := postgres.Open(t.Context(), database, postgres.Options{})
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, c.want) {
				t.Errorf("Open: got error %v, want %v", err, c.want)
			}
		})
	}
	t.Run("a database of another encoding", func(t *testing.T) {
		database := pgtest.Database(t)
		latin := "latin_" + fresh()
		administer(t, database, "CREATE DATABASE "+latin+" TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
		if s, err := postgres.Open(t.Context(), strings.Replace(database, inURL(database), latin, 1), postgres.Options{}); err == nil {
			_ = s.Close()
			t.Error("Open: got no error")
		}
	})
}

// Requests that must not be done twice write parcels beside their tokens. That
// must not cost them the commit that they share with others.
func TestUpdatesOfParcelsAndSessionsAreGathered(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := open(t, pgtest.Database(t), postgres.Options{Metrics: registry})
	ctx := t.Context()
	parcel := store.Parcel{Kind: store.ParcelAnswer, ID: "p", Version: 1}
	answered := parcel
	answered.Contents, answered.Version = []byte("sealed"), 2
	for i, write := range []func(tx store.Tx) error{
		func(tx store.Tx) error { return tx.InsertParcel(ctx, parcel) },
		func(tx store.Tx) error { return tx.ReplaceParcel(ctx, answered) },
		func(tx store.Tx) error { return tx.DeleteParcel(ctx, parcel.Kind, parcel.ID) },
		func(tx store.Tx) error {
			return tx.InsertSession(ctx, store.Session{ID: "s", KeyHash: []byte("k"), NonceHash: []byte("n")})
		},
	} {
		if err := s.Update(ctx, tenantA, func(tx store.Tx) error {
			return errors.Join(tx.InsertToken(ctx, storetest.SomeToken()), write(tx), tx.AppendLog(ctx, storetest.SomeEntry("x")))
		}); err != nil {
			t.Fatal(err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if got := f.GetMetric()[0].GetHistogram().GetSampleCount(); f.GetName() == "tokenkeep_store_commit_updates" && got != uint64(i+1) {
				t.Errorf("after update %d there were %d shared commits, want one for each", i+1, got)
			}
		}
	}
}

func TestServersThatStartTogetherTakeTurns(t *testing.T) {
	database := pgtest.Database(t)
	var wg sync.WaitGroup
	stores := make([]*postgres.Store, 6)
	for i := range stores {
		wg.Go(func() { stores[i] = open(t, database, postgres.Options{Connections: 2}) })
	}
	wg.Wait()
	for i, s := range stores {
		if err := storetest.InsertToken(t.Context(), s, int64(i)); err != nil {
			t.Errorf("server %d: %v", i, err)
		}
	}
}

func TestEveryConnectionIsBounded(t *testing.T) {
	s := open(t, pgtest.Database(t), postgres.Options{})
	for name, want := range map[string]string{
		"statement_timeout": "4s", "lock_timeout": "3s", "idle_in_transaction_session_timeout": "5s",
		"synchronous_commit": "on", "role": "tokenkeep_requests", "search_path": "tokenkeep, pg_temp",
	} {
		if got, err := s.Show(t.Context(), name); got != want || err != nil {
			t.Errorf("%s: got %q, error %v; want %q", name, got, err, want)
		}
	}
}

// TestCountersDoNotGetInEachOthersWay writes to one group from every
// connection at once: each has a slot of its own, so nothing is tried again.
func TestCountersDoNotGetInEachOthersWay(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := open(t, pgtest.Database(t), postgres.Options{Metrics: registry, Ungathered: true})
	// A group that comes is counted in a row that all connections share.
	if err := storetest.InsertToken(t.Context(), s, 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				if err := storetest.InsertToken(t.Context(), s, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := metric(t, registry, "tokenkeep_store_retries_total"); n != 0 {
		t.Errorf("%v updates were run again, want none", n)
	}
	if err := s.View(t.Context(), storetest.BenchTenant(0), func(tx store.Tx) error {
		n, err := tx.CountTokens(t.Context(), store.TokenFilter{Now: 1, Groups: store.AllGroups()})
		if n != 321 {
			t.Errorf("%d tokens are counted, want 321", n)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestOneWhoseKeyIsTakenFailsAlone has updates share commits with one that
// cannot be kept.
func TestOneWhoseKeyIsTakenFailsAlone(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := open(t, pgtest.Database(t), postgres.Options{Metrics: registry})
	ctx := t.Context()
	taken := storetest.SomeToken()
	insert := func(tok store.Token) error {
		return s.Update(ctx, tenantA, func(tx store.Tx) error {
			return errors.Join(tx.InsertToken(ctx, tok), tx.AppendLog(ctx, storetest.SomeEntry(tok.ID)))
		})
	}
	if err := insert(taken); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a commit is shared with one that cannot be kept", func() bool {
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				if i%10 == 0 {
					if err := insert(taken); !errors.Is(err, store.ErrExists) {
						t.Errorf("an insert of an id that is taken: got error %v, want %v", err, store.ErrExists)
					}
				} else if err := insert(storetest.SomeToken()); err != nil {
					t.Errorf("an insert beside it: %v", err)
				}
			})
		}
		wg.Wait()
		return metric(t, registry, "tokenkeep_store_commits_split_total") > 0
	})
	if err := storetest.Verify(t.Context(), s, nil); err != nil {
		t.Error(err)
	}
}

// holds returns how many files below dir hold the needle.
func holds(t *testing.T, dir, needle string) (n int) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // a file that goes while we look
		}
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(needle)) {
			n++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDestroyedKeysLeaveNoBytes(t *testing.T) {
	storetest.CheckOnly(t)
	cluster := pgtest.Start(t, pgtest.Options{NoSync: true})
	database := cluster.Database(t)
	s := open(t, database, postgres.Options{})
	ctx := t.Context()
	const epochKey, keyset, rewrapped = "wrapped epoch key 8642097531", "wrapped keyset 1357908642", "wrapped anew 5566778899"
	put := func(tenant string, version int64, wrapped string) {
		if err := s.Update(ctx, tenant, func(tx store.Tx) error {
			return tx.PutKeyset(ctx, store.Keyset{Purpose: "data", Wrapped: []byte(wrapped), Version: version})
		}); err != nil {
			t.Fatal(err)
		}
	}
	// What comes last to a page is not written over when the rest is moved
	// together, so the keys of another tenant come first.
	put(tenantB, 1, "of another tenant")
	put(tenantA, 1, keyset)
	for tenant, wrapped := range map[string]string{tenantB: "of another tenant", tenantA: epochKey} {
		if _, err := s.EpochKeys().AddEpochKey(ctx, tenant, 1, []byte(wrapped)); err != nil {
			t.Fatal(err)
		}
	}
	administer(t, database, "CHECKPOINT")
	data := filepath.Join(cluster.Folder(), "data")
	if holds(t, filepath.Join(data, "pg_wal"), keyset) == 0 || holds(t, filepath.Join(data, "base"), keyset) == 0 {
		t.Fatal("the keyset is not in the files: the test looks in the wrong place")
	}
	put(tenantA, 2, rewrapped)
	if err := s.EpochKeys().DestroyTenantEpochKeys(ctx, tenantA); err != nil {
		t.Fatal(err)
	}
	if err := s.Tidy(ctx); err != nil {
		t.Fatal(err)
	}
	administer(t, database, "CHECKPOINT")
	// The table of epoch keys is in no log, so there is no other place either.
	if n := holds(t, data, epochKey); n > 0 {
		t.Errorf("%d files hold an epoch key that was destroyed", n)
	}
	for what, n := range map[string]int{"replaced": holds(t, filepath.Join(data, "base"), keyset), "kept": 1 - holds(t, filepath.Join(data, "base"), rewrapped)} {
		if n != 0 {
			t.Errorf("a keyset that was %s: found it in %d files too many", what, n)
		}
	}
	if err := s.Update(ctx, tenantA, func(tx store.Tx) error { return tx.DestroyKeysets(ctx) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Tidy(ctx); err != nil {
		t.Fatal(err)
	}
	administer(t, database, "CHECKPOINT")
	if n := holds(t, filepath.Join(data, "base"), rewrapped); n > 0 {
		t.Errorf("%d files hold a keyset that was destroyed", n)
	}
}

// TestARewriteWaitsForNobody holds the table as a dump does.
func TestARewriteWaitsForNobody(t *testing.T) {
	database := pgtest.Database(t)
	s := openBare(t, database, postgres.Options{})
	ctx := t.Context()
	fill(t, s, tenantA)
	dump, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dump.Close(ctx) }()
	if _, err := dump.Exec(ctx, "BEGIN; LOCK TABLE tokenkeep.keysets IN ACCESS SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(ctx, tenantA, func(tx store.Tx) error { return tx.DestroyKeysets(ctx) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Tidy(ctx); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Tidy while a dump runs: got error %v, want %v", err, store.ErrUnavailable)
	}
	if _, err := dump.Exec(ctx, "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := s.Tidy(ctx); err != nil {
		t.Errorf("Tidy afterwards: %v", err)
	}
}

// TestADumpLeavesEpochKeysOut runs the command that the operators' page gives.
func TestADumpLeavesEpochKeysOut(t *testing.T) {
	storetest.CheckOnly(t)
	cluster := pgtest.Start(t, pgtest.Options{NoSync: true})
	database := cluster.Database(t)
	s := open(t, database, postgres.Options{})
	ctx := t.Context()
	if _, err := s.EpochKeys().AddEpochKey(ctx, tenantA, 1, []byte("an epoch key")); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(ctx, tenantA, func(tx store.Tx) error {
		return tx.PutKeyset(ctx, store.Keyset{Purpose: "data", Wrapped: []byte("a keyset"), Version: 1})
	}); err != nil {
		t.Fatal(err)
	}
	const option = "--exclude-table-data=tokenkeep.epoch_keys"
	for _, c := range []struct {
		options []string
		want    bool
	}{{nil, true}, {[]string{option}, false}} {
		dump, err := cluster.Command("pg_dump", inURL(database), c.options...).Output()
		if err != nil {
			t.Fatal(err)
		}
		has := func(text string) bool { return bytes.Contains(dump, fmt.Appendf(nil, "%x", text)) }
		if has("an epoch key") != c.want || !has("a keyset") {
			t.Errorf("pg_dump with %q: epoch keys in it: %t, keysets: %t; want %t and true", c.options, has("an epoch key"), has("a keyset"), c.want)
		}
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operations.md"))
	if err != nil || !bytes.Contains(page, []byte(option)) {
		t.Errorf("the operators' page does not have the option %s: %v", option, err)
	}
}

// TestEpochKeysOutliveACrashByChoice stops the database hard.
func TestEpochKeysOutliveACrashByChoice(t *testing.T) {
	storetest.CheckOnly(t)
	for _, logged := range []bool{false, true} {
		t.Run(fmt.Sprintf("logged=%t", logged), func(t *testing.T) {
			cluster := pgtest.Start(t, pgtest.Options{NoSync: true})
			database := cluster.Database(t)
			// It was chosen otherwise at first.
			if err := open(t, database, postgres.Options{LoggedEpochKeys: !logged}).Close(); err != nil {
				t.Fatal(err)
			}
			s := open(t, database, postgres.Options{LoggedEpochKeys: logged})
			if _, err := s.EpochKeys().AddEpochKey(t.Context(), tenantA, 1, []byte("w")); err != nil {
				t.Fatal(err)
			}
			cluster.Kill()
			if err := cluster.Restart(); err != nil {
				t.Fatal(err)
			}
			want := map[bool]error{false: store.ErrNotFound}[logged]
			if _, err := s.EpochKeys().EpochKey(t.Context(), tenantA, 1); !errors.Is(err, want) {
				t.Errorf("EpochKey after a crash: got error %v, want %v", err, want)
			}
			// Nothing else is gone, and new keys are made.
			if _, err := s.EpochKeys().AddEpochKey(t.Context(), tenantA, 2, []byte("w")); err != nil {
				t.Errorf("AddEpochKey after a crash: %v", err)
			}
		})
	}
}

func TestOldCommitsAreForgotten(t *testing.T) {
	s := open(t, pgtest.Database(t), postgres.Options{})
	ctx := t.Context()
	if err := storetest.InsertToken(ctx, s, 0); err != nil {
		t.Fatal(err)
	}
	left := func() int64 {
		n, err := s.AsTenant(ctx, storetest.BenchTenant(0), "SELECT 1 FROM commits")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, c := range []struct {
		age  string
		kept bool
		want int64
	}{{"9 minutes", true, 1}, {"11 minutes", true, 0}, {"23 hours", false, 1}, {"25 hours", false, 0}} {
		if err := s.AsOwner(ctx, "DELETE FROM commits"); err != nil {
			t.Fatal(err)
		}
		if err := s.AsOwner(ctx, "INSERT INTO commits VALUES ($1, gen_random_uuid(), $2, now() - $3::text::interval)", storetest.BenchTenant(0), c.kept, c.age); err != nil {
			t.Fatal(err)
		}
		if err := s.Tidy(ctx); err != nil {
			t.Fatal(err)
		}
		if got := left(); got != c.want {
			t.Errorf("a commit of %s, kept %t: %d are left, want %d", c.age, c.kept, got, c.want)
		}
	}
}
