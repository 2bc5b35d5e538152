package endpoint_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/endpoint"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// TestNoResponseLeavesToACallerThatTheRowRefuses: the services behind these rows
// forget to refuse.
func TestNoResponseLeavesToACallerThatTheRowRefuses(t *testing.T) {
	forgetful := func(*http.Request, access.Caller, *idempotency.Attempt) (*response.Response, error) {
		return &response.Response{Status: http.StatusOK, Body: []byte(`"shown"`)}, nil
	}
	stream := func(*http.Request, access.Caller, *idempotency.Attempt) (*response.Response, error) {
		return &response.Response{Stream: func(w http.ResponseWriter) error {
			_, err := w.Write([]byte("shown"))
			return err
		}}, nil
	}
	for name, tt := range map[string]struct {
		row  httpapi.Route
		want int
	}{
		"any key":                      {httpapi.Route{Auth: httpapi.APIKey}, 200},
		"a permission that it has":     {httpapi.Route{Auth: httpapi.APIKey, Permission: access.TokenRead}, 200},
		"a permission that it has not": {httpapi.Route{Auth: httpapi.APIKey, Permission: access.TokenUpdate}, 500},
		"one of the tenant":            {httpapi.Route{Auth: httpapi.APIKey, Permission: access.LogRead}, 500},
		"a public key":                 {httpapi.Route{Auth: httpapi.PublicKey}, 500},
		"anybody":                      {httpapi.Route{Auth: httpapi.Anonymous}, 200},
	} {
		written, streamed := tt.row, tt.row
		written.Pattern, streamed.Pattern = "GET /written", "GET /streamed"
		h := httpapi.New(httpapi.Options{Authenticate: func(context.Context, secret.Text) (access.Caller, error) {
			return accesstest.Caller(t, "tenant", "application", access.TokenRead), nil
		}}, []httpapi.Route{endpoint.RouteOf(written, forgetful), endpoint.RouteOf(streamed, stream)})
		for _, path := range []string{"/written", "/streamed"} {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("SVC-API-KEY", "any")
			h.ServeHTTP(w, r)
			if w.Code != tt.want || strings.Contains(w.Body.String(), "shown") != (tt.want == 200) {
				t.Errorf("%s: GET %s = %d %s, want %d", name, path, w.Code, w.Body, tt.want)
			}
		}
	}
}

func TestAnIdempotentRowTakesSomethingOfItsCaller(t *testing.T) {
	for name, row := range map[string]httpapi.Route{
		"any key": {Pattern: "POST /x", Auth: httpapi.APIKey, Idempotent: true}, "anybody": {Pattern: "POST /x", Auth: httpapi.Anonymous, Idempotent: true},
		"the operator": {Pattern: "POST /x", Auth: httpapi.AdminSocket, Idempotent: true},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("an idempotent row for %s is served", name)
				}
			}()
			endpoint.RouteOf(row, nil)
		}()
	}
}
