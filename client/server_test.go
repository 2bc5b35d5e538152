package client_test

import (
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// TestAnAuditLogOfSeveralPagesIsReadOnce although every page that is read
// makes an entry.
func TestAnAuditLogOfSeveralPagesIsReadOnce(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	keys, _, err := k.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(k.URL, client.WithKey(keys.ManagementKey), client.WithHTTPClient(k.Client))
	if err != nil {
		t.Fatal(err)
	}
	const looks = 250
	for range looks {
		if _, err := c.Tenant.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, list := range map[string]iter.Seq2[api.LogEntry, error]{
		"Logs.List": c.Logs.List(t.Context(), client.LogFilter{}), "Logs.ListFrom": c.Logs.ListFrom(t.Context(), client.LogFilter{}),
	} {
		seen := make(map[string]bool)
		messages := make(map[string]int)
		for e, err := range list {
			if err != nil {
				t.Fatal(err)
			}
			if seen[e.ID] {
				t.Errorf("%s: entry %s came twice", name, e.ID)
			}
			seen[e.ID] = true
			messages[e.Message]++
		}
		if messages["Tenant retrieved"] != looks || messages["Tenant created"] != 1 || messages["Application created"] != 3 || messages["Logs retrieved"] != 0 {
			t.Errorf("%s has %v, want %d looks at the tenant, the tenant and three applications", name, messages, looks)
		}
	}
}

// TestKeysOfOthersAreToldApart by their errors.
func TestKeysOfOthersAreToldApart(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"header_prefix": "BT"}})
	keys, _, err := k.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		key    string
		prefix string
		want   error
	}{
		"management":     {keys.ManagementKey, "BT", nil},
		"private":        {keys.PrivateKey, "BT", client.ErrForbidden},
		"unknown":        {strings.Repeat("x", 40), "BT", client.ErrUnauthenticated},
		"another prefix": {keys.ManagementKey, "SVC", client.ErrUnauthenticated},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			c, err := client.New(k.URL, client.WithKey(want.key), client.WithHeaderPrefix(want.prefix), client.WithHTTPClient(k.Client))
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Tenant.Get(t.Context())
			if !errors.Is(err, want.want) {
				t.Errorf("Tenant.Get = %v, want %v", err, want.want)
			}
			var e *client.Error
			if errors.As(err, &e) && (e.TraceID == "") != (want.prefix == "SVC") {
				t.Errorf("trace id %q under the prefix %s", e.TraceID, want.prefix)
			}
		})
	}
}
