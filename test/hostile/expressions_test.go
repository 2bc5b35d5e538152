package hostile_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// TestCostlyExpressionsAreRefusedAndCounted sends them as a public application,
// whose key anyone has. Another tenant is served beside it.
func TestCostlyExpressionsAreRefusedAndCounted(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"limits.expression_steps": "1000000"}})
	attacker, other := k.Tenant(t), k.Tenant(t)
	public := k.Application(t, attacker.Tenant.ID, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	served := k.Application(t, other.Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:create", "token:read"}}).Key
	card := `{"type":"card","data":{"number":"4242424242424242"}}`
	const grown = "{{ data | pad_left: 999999 | replace: ' ', 'xxxxxxxx' | split: '' }}"
	steps := strings.Repeat("{{ data | size }}", 75)
	for _, attack := range []struct{ path, body, code string }{
		{"/tokens", `{"type":"token","data":"1","fingerprint_expression":"` + grown + `"}`, "expression_steps"},
		{"/tokens", `{"type":"token","data":"1","search_indexes":["` + strings.Repeat("{{ data | pad_left: 4000 | split: '' | size }}", 3) + `"]}`, "expression_memory"},
		{"/tokens", `{"type":"token","data":"` + strings.Repeat("x", 5000) + `","mask":"` + steps + `"}`, "expression_steps"},
		{"/tokenize", `[{"type":"token","data":"` + strings.Repeat("x", 5000) + `","search_indexes":["` + strings.Repeat(steps+`","`, 5) + steps + `"]}]`, "expression_steps"},
	} {
		got := k.Call(t, http.MethodPost, attack.path, public, attack.body)
		if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, `"code":"`+attack.code+`"`) {
			t.Errorf("POST %s %.80s = %d %s, want a 400 with %s", attack.path, attack.body, got.Status, got.Body, attack.code)
		}
		if got := k.Call(t, http.MethodPost, "/tokens", served, card); got.Status != http.StatusCreated {
			t.Errorf("a card of another tenant = %d %s", got.Status, got.Body)
		}
	}
	response, err := k.Client.Get(k.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	metrics, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(metrics), `tokenkeep_limit_reached_total{limit="expressions"} 4`) {
		t.Errorf("the metrics do not count four requests that reached the limit on expressions (%v)", err)
	}
}
