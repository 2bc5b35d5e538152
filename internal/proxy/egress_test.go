package proxy_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/egress/egresstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
)

// behind puts the real way out behind a world.
func behind(t testing.TB, s egress.Settings, firstByte time.Duration) func(*world, *proxy.Options) proxy.Destinations {
	t.Helper()
	e, err := egress.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return func(_ *world, o *proxy.Options) proxy.Destinations {
		o.FirstByte = firstByte
		return e
	}
}

// TestNoProxyReachesAForbiddenDestination runs the whole corpus through
// definitions, and through calls that bring their destination.
func TestNoProxyReachesAForbiddenDestination(t *testing.T) {
	witness, names := egresstest.NewWitness(t), egresstest.NewNames(t)
	w := newWorld(t, behind(t, egress.Settings{Resolver: names.Resolver(), Metrics: witness.Registry}, 0))
	id := w.token(card)
	dialled := 0
	for _, row := range egresstest.Forbidden(witness.Port()) {
		var b jsonvalue.Builder
		b.Add("name", jsonvalue.NewString("p"))
		b.Add("destination_url", jsonvalue.NewString(row.URL))
		names.SetAll(row.Answers)
		p, err := w.Create(t.Context(), w.manager, b.Value())
		switch row.Where {
		case egresstest.AtDefinition:
			if got := fault.Of(err).Fields()["destination_url"]; len(got) == 0 {
				t.Errorf("%s: Create = %v, want errors under destination_url", row.Name, err)
			}
		case egresstest.AtDial:
			if err != nil {
				t.Fatalf("%s: Create = %v", row.Name, err)
			}
			dialled++
			if _, _, err := w.call(p, "POST", "/", "text/plain", "{{"+id+"}}"); !errors.Is(err, egress.ErrForbidden) || !errors.Is(err, fault.Invalid) {
				t.Errorf("%s: Invoke = %v, want a refusal", row.Name, err)
			}
		default:
			continue // a redirect is an answer like any other
		}
		names.SetAll(row.Answers)
		if err := w.bring(row.URL, "{{"+id+"}}"); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: Invoke with the destination = %v, want a refusal", row.Name, err)
		}
	}
	if dialled < 50 {
		t.Errorf("%d rows were dialled, want at least 50", dialled)
	}
	if n := witness.Connections(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}

// bring makes a call that names its destination.
func (w *world) bring(destination, body string) error {
	a, _, err := w.Invoke(w.t.Context(), proxy.Incoming{
		Method: "POST", Header: http.Header{"Svc-Proxy-Url": {destination}, "Svc-Api-Key": {"k"}, "Content-Type": {"text/plain"}},
		Body: strings.NewReader(body), Length: int64(len(body)), Authenticate: func() (access.Caller, error) { return w.user, nil },
	})
	if err == nil {
		_ = a.Body.Close()
	}
	return err
}

func TestADestinationThatTakesTooLongIsATimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	w := newWorld(t, behind(t, egress.Settings{Dev: true}, 50*time.Millisecond))
	p := w.define(`{"name":"slow","destination_url":"http://` + l.Addr().String() + `"}`)
	if _, _, err := w.call(p, "POST", "/", "text/plain", "x"); !errors.Is(err, fault.Timeout) {
		t.Errorf("Invoke = %v, want a timeout", err)
	}
}
