package httpapi_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

func TestARowRefusesCallersThatDoNotMeetIt(t *testing.T) {
	application := func(kind access.ApplicationType, permissions ...access.Permission) access.Caller {
		return access.NewApplication("tenant-1", "application-1", kind, access.PlainGrant(permissions...))
	}
	var (
		nobody     access.Caller
		private    = application(access.Private, access.TokenRead)
		public     = application(access.Public, access.TokenCreate)
		management = application(access.Management, access.LogRead)
		session    = access.NewUncappedSession("tenant-1", "application-1", "session-1", access.PlainGrant(access.TokenRead))
	)
	for name, tt := range map[string]struct {
		row     httpapi.Route
		allowed []access.Caller
		refused []access.Caller
	}{
		"any key":          {httpapi.Route{Auth: httpapi.APIKey}, []access.Caller{private, public, management, session}, []access.Caller{nobody}},
		"on tokens":        {httpapi.Route{Auth: httpapi.APIKey, Permission: access.TokenRead}, []access.Caller{private, session}, []access.Caller{nobody, public, management}},
		"on the tenant":    {httpapi.Route{Auth: httpapi.APIKey, Permission: access.LogRead}, []access.Caller{management}, []access.Caller{nobody, private, public, session}},
		"a public key":     {httpapi.Route{Auth: httpapi.PublicKey}, []access.Caller{public}, []access.Caller{nobody, private, management, session}},
		"a private key":    {httpapi.Route{Auth: httpapi.PrivateKey}, []access.Caller{private}, []access.Caller{nobody, public, management, session}},
		"anonymous":        {httpapi.Route{Auth: httpapi.Anonymous}, []access.Caller{nobody}, nil},
		"the admin socket": {httpapi.Route{Auth: httpapi.AdminSocket}, []access.Caller{nobody}, nil},
		"the zero value":   {httpapi.Route{}, nil, []access.Caller{nobody, private, public, management, session}},
	} {
		for _, c := range tt.allowed {
			if err := tt.row.Require(c); err != nil {
				t.Errorf("%s: Require(%+v) = %v, want nil", name, c, err)
			}
		}
		for _, c := range tt.refused {
			if err := tt.row.Require(c); !errors.Is(err, fault.Forbidden) {
				t.Errorf("%s: Require(%+v) = %v, want that it is forbidden", name, c, err)
			}
		}
	}
}

func TestRowsOfTheAdminSocketAreServedThereAlone(t *testing.T) {
	row := httpapi.Route{Pattern: "GET /status", Auth: httpapi.AdminSocket, Handle: answer}
	e := newEdge(t, httpapi.Options{AdminSocket: true, RateLimits: httpapi.RateLimits{PerAddress: httpapi.Rate{PerSecond: 0.001, Burst: 1}}}, row)
	for range 3 {
		w := e.do("GET", "/status", nil, "Origin", "https://a.example")
		if w.Code != http.StatusOK || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("GET /status = %d %v, want 200, no limit and no CORS headers", w.Code, w.Header())
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("New accepted a row for keys on the admin socket")
		}
	}()
	httpapi.New(httpapi.Options{AdminSocket: true}, []httpapi.Route{{Pattern: "GET /tokens", Auth: httpapi.APIKey, Handle: answer}})
}

func TestARowThatDoesNotSayHowCallersAreKnownRefusesThem(t *testing.T) {
	e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "GET /x", Auth: httpapi.Anonymous, Handle: answer})
	e.LoseAuth()
	for _, path := range []string{"/x", "/healthz"} {
		if w := e.do("GET", path, nil, "SVC-API-KEY", goodKey); w.Code != http.StatusForbidden {
			t.Errorf("GET %s = %d, want 403", path, w.Code)
		}
	}
}
