package sqlite_test

import (
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const tenantA, tenantB = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

func TestNoRequestScansATableOrSorts(t *testing.T) {
	s := openBare(t, t.TempDir(), sqlite.Options{Readers: 2})
	storetest.EveryRequest(t, s, tenantA)
	storetest.EverySweep(t, s)
	plans, err := s.Plans()
	if err != nil {
		t.Fatal(err)
	}
	if len(plans) < 60 {
		t.Fatalf("only %d statements were recorded", len(plans))
	}
	seeks := 0
	for text, plan := range plans {
		if text == "SELECT tenant_id, term FROM token_term_counts" {
			continue // once, when the store is opened
		}
		for _, step := range plan {
			if strings.HasPrefix(step, "SEARCH") {
				seeks++
			}
			// Whoever asks for more than the tenant's rows must not pass over all
			// of them. In its own table it has one, and few in that of counters.
			wide := strings.Contains(step, "(tenant_id=?)") && strings.Contains(text, " AND ") && !strings.HasPrefix(step, "SEARCH tenants ") && !strings.HasPrefix(step, "SEARCH log_counts ")
			scan := strings.HasPrefix(step, "SCAN") && step != "SCAN CONSTANT ROW" && step != "SCAN sqlite_schema" && !strings.HasPrefix(step, "SCAN (") &&
				step != "SCAN page" && // of a bounded number of rows
				step != "SCAN tokens USING COVERING INDEX tokens_outdated" // which holds nothing but what is asked for
			sort := strings.Contains(step, "TEMP B-TREE") && !strings.Contains(text, " AS page ")
			if scan || wide || sort || strings.Contains(step, "AUTOMATIC") {
				t.Errorf("%s\n\tis run with: %s", strings.Join(strings.Fields(text), " "), strings.Join(plan, "; "))
			}
		}
	}
	if seeks < 40 {
		t.Errorf("only %d seeks in %d plans: they are not read rightly", seeks, len(plans))
	}
}
