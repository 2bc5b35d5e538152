package canary_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// TestPlantedValuesAreNowhereInPostgreSQL searches a dump, and the files of the
// database itself: tables, indexes and the write-ahead log.
func TestPlantedValuesAreNowhereInPostgreSQL(t *testing.T) {
	storetest.CheckOnly(t)
	cluster := pgtest.Start(t, pgtest.Options{})
	url := cluster.Database(t)
	g := newGarden(t, keeptest.Options{StoreURL: url})
	control := "control " + g.text("control")
	g.values, g.where = g.values[:len(g.values)-1], g.where[:len(g.where)-1]
	g.Application(t, g.tenant, api.CreateApplication{Name: control, Type: "private", Permissions: []string{"token:read"}})
	g.plantTokens()
	g.useTokens()
	g.plantFaults()
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}

	name := strings.TrimPrefix(strings.SplitN(url, "?", 2)[0], "postgres:///")
	dump, err := cluster.Command("pg_dump", name).Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	if out, err := cluster.Command("psql", name, "-c", "CHECKPOINT").CombinedOutput(); err != nil {
		t.Fatalf("checkpoint: %v: %s", err, out)
	}
	s, known := g.scanner(), scannerFor(t, control)
	g.none(s, "dump", dump)
	if len(known.Search(dump)) == 0 || !strings.Contains(string(dump), "epoch_keys") {
		t.Error("the control is not in the dump: the search looks in the wrong place")
	}
	heap, log := 0, 0
	for file, b := range files(t, filepath.Join(cluster.Folder(), "data")) {
		g.none(s, file, b)
		switch n := len(known.Search(b)); {
		case strings.HasPrefix(file, "base"+string(filepath.Separator)):
			heap += n
		case strings.HasPrefix(file, "pg_wal"+string(filepath.Separator)):
			log += n
		}
	}
	if heap == 0 || log == 0 {
		t.Errorf("the control was found %d times in tables and %d times in the log of changes, want both", heap, log)
	}
	g.none(s, "log", []byte(g.Log.String()))
	g.none(s, "errors", []byte(g.refusals.String()))
	g.none(s, "previews", []byte(g.previews.String()))
	g.noneOfData("answers that must not reveal", g.hidden.String())
}
