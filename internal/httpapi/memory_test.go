package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/admission"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// bodies is a handler whose rows keep their bodies until they are let go.
type bodies struct {
	*edge
	pool    *admission.Pool
	limits  *limit.Recorder
	inside  chan struct{} // one for each request that was admitted
	release chan struct{}
}

func newBodies(t *testing.T, size int64) *bodies {
	t.Helper()
	b := &bodies{inside: make(chan struct{}), release: make(chan struct{})}
	b.limits = limit.NewRecorder(time.Now, prometheus.NewRegistry())
	b.pool = admission.NewPool(size, b.limits)
	read := func(w http.ResponseWriter, r *http.Request, c access.Caller) error {
		var in map[string]any
		if err := httpapi.Decode(r, &in); err != nil {
			return err
		}
		return answer(w, r, c)
	}
	b.edge = newEdge(t, httpapi.Options{
		Memory: b.pool, Limits: b.limits,
		Authenticate: func(_ context.Context, key secret.Text) (access.Caller, error) {
			return accesstest.Caller(t, key.Reveal(), "app"), nil // the key is the name of the tenant
		},
	}, httpapi.Route{Pattern: "POST /read", Auth: httpapi.APIKey, Body: httpapi.JSON, Handle: read},
		httpapi.Route{Pattern: "POST /keep", Auth: httpapi.APIKey, Body: httpapi.JSON, Handle: func(w http.ResponseWriter, r *http.Request, c access.Caller) error {
			if err := read(w, r, c); err != nil {
				return err
			}
			b.inside <- struct{}{}
			<-b.release
			return nil
		}})
	return b
}

func (b *bodies) post(path, tenant, body string) *httptest.ResponseRecorder {
	return b.do("POST", path, strings.NewReader(body), "SVC-API-KEY", tenant, "Content-Type", "application/json")
}

func text(bytes int) string { return `{"a":"` + strings.Repeat("x", bytes) + `"}` }

func TestLargeBodiesOfOneTenantLeaveRoomForOthers(t *testing.T) {
	const size = 64 << 20
	b := newBodies(t, size)
	var attack sync.WaitGroup
	codes := make(chan int, 100)
	for range 40 {
		attack.Go(func() { codes <- b.post("/keep", "attacker", text(1<<20)).Code })
	}
	admitted, refused := 0, 0
	for admitted+refused < 40 {
		select {
		case <-b.inside:
			admitted++
		case code := <-codes:
			if refused++; code != 503 {
				t.Errorf("an attacker's request = %d, want 503", code)
			}
		}
	}
	if refused == 0 || admitted == 0 || b.pool.Used() > size/2 {
		t.Errorf("%d were admitted and %d refused, and hold %d bytes, want some of each and at most %d bytes", admitted, refused, b.pool.Used(), size/2)
	}
	for i := range 20 {
		if w := b.post("/read", "shop", text(1<<20)); w.Code != 200 {
			t.Errorf("request %d of the other tenant = %d %s, want 200", i, w.Code, w.Body)
		}
	}
	w := b.post("/read", "attacker", text(1<<20))
	if got := problem(t, w); w.Code != 503 || got.Code != "tenant_request_memory" || w.Header().Get("Retry-After") == "" {
		t.Errorf("one more of the attacker = %d %+v, want 503 tenant_request_memory with Retry-After", w.Code, got)
	}
	close(b.release)
	attack.Wait()
	if b.pool.Peak() > size || b.pool.Used() != 0 {
		t.Errorf("the requests held at most %d bytes and now %d, want at most %d and 0", b.pool.Peak(), b.pool.Used(), size)
	}
	if got := b.limits.LastHour(); len(got) != 1 || got[0].Name != limit.RequestMemory {
		t.Errorf("the limits reached are %v, want request_memory", got)
	}
}

func TestABodyOfManySmallValuesWeighsMoreThanAText(t *testing.T) {
	b := newBodies(t, 64<<20)
	if w := b.post("/read", "shop", text(2<<20)); w.Code != 200 {
		t.Errorf("a text of 2 MiB = %d, want 200", w.Code)
	}
	many := `{"a":[` + strings.Repeat("0,", 1<<20) + `0]}`
	if w := b.post("/read", "shop", many); w.Code != 413 || problem(t, w).Code != "request_too_heavy" {
		t.Errorf("a million numbers in 2 MiB = %d %s, want 413 request_too_heavy", w.Code, w.Body)
	}
	if b.pool.Used() != 0 {
		t.Errorf("%d bytes are still held", b.pool.Used())
	}
}

func TestAnAnnouncedBodyThatDoesNotComeHoldsNothing(t *testing.T) {
	b := newBodies(t, 64<<20)
	r := httptest.NewRequest("POST", "/read", strings.NewReader("{"))
	r.ContentLength = 5 << 20
	r.Header.Set("SVC-API-KEY", "shop")
	r.Header.Set("Content-Type", "application/json")
	b.ServeHTTP(httptest.NewRecorder(), r)
	if b.pool.Peak() > 64<<10 {
		t.Errorf("a request that announced 5 MiB and sent 1 byte held %d bytes", b.pool.Peak())
	}
}
