package egress_test

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/egress/egresstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// world is an Egress in front of a witness and a name server of its own.
type world struct {
	*egress.Egress
	witness *egresstest.Witness
	names   *egresstest.Names
}

func newWorld(t *testing.T, s egress.Settings) world {
	t.Helper()
	w := world{witness: egresstest.NewWitness(t), names: egresstest.NewNames(t)}
	if s.Resolver == nil {
		s.Resolver = w.names.Resolver()
	}
	s.Metrics = w.witness.Registry
	e, err := egress.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	w.Egress = e
	return w
}

func (w world) get(t *testing.T, tenant, target string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	answer, err := w.Transport(tenant, 0).RoundTrip(r)
	if err == nil {
		t.Cleanup(func() { _ = answer.Body.Close() })
	}
	return answer, err
}

func TestNoForbiddenDestinationIsReached(t *testing.T) {
	w := newWorld(t, egress.Settings{})
	rows := egresstest.Forbidden(w.witness.Port())
	if len(rows) < 300 {
		t.Errorf("the corpus has %d rows, want at least 300", len(rows))
	}
	seen := make(map[string]bool)
	for _, row := range rows {
		if seen[row.Name] {
			t.Errorf("two rows are called %q", row.Name)
		}
		seen[row.Name] = true
		w.names.SetAll(row.Answers)
		u, err := w.Check(row.URL)
		switch row.Where {
		case egresstest.AtDefinition:
			wantRefusal(t, row, "Check", err)
			// Nor does it get through where nobody checked before.
			if _, err := w.get(t, "t1", row.URL); err == nil {
				t.Errorf("%s: RoundTrip went through", row.Name)
			}
			if u, err := url.Parse(row.URL); err == nil {
				port, _ := strconv.ParseUint(u.Port(), 10, 16)
				if _, err := w.Dial(t.Context(), "t1", u.Hostname(), uint16(port)); err == nil {
					t.Errorf("%s: Dial went through", row.Name)
				}
			}
		case egresstest.AtDial:
			if err != nil {
				t.Errorf("%s: Check = %v, want nil", row.Name, err)
				continue
			}
			_, err := w.get(t, "t1", u.String())
			wantRefusal(t, row, "RoundTrip", err)
			w.names.SetAll(row.Answers)
			_, err = w.Dial(t.Context(), "t1", u.Hostname(), w.witness.Port())
			wantRefusal(t, row, "Dial", err)
			if got := egress.Errno(err); got != "EACCES" {
				t.Errorf("%s: Errno = %s, want EACCES", row.Name, got)
			}
		}
	}
	if n := w.witness.Connections(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}

func wantRefusal(t *testing.T, row egresstest.Row, call string, err error) {
	t.Helper()
	if !errors.Is(err, egress.ErrForbidden) || fault.Of(err).Kind() != fault.Invalid {
		t.Errorf("%s: %s = %v, want a refusal", row.Name, call, err)
		return
	}
	if host := strings.Trim(row.URL, "htps:/"); len(host) > 3 && strings.Contains(err.Error(), host) {
		t.Errorf("%s: %s repeats the URL: %v", row.Name, call, err)
	}
}

// TestWhatIsOpenedIsReached shows that the witness sees: the same calls, with
// the door open.
func TestWhatIsOpenedIsReached(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")}
	for name, test := range map[string]struct {
		settings egress.Settings
		host     string
		answer   egresstest.Answer
	}{
		"an address in an open network":       {egress.Settings{AllowNetworks: loopback}, "127.0.0.1", egresstest.Answer{}},
		"a name in an open network":           {egress.Settings{AllowNetworks: loopback}, "pay.example", egresstest.Answer{Addresses: []string{"127.0.0.1"}}},
		"a mapped address in an open network": {egress.Settings{AllowNetworks: loopback}, "pay.example", egresstest.Answer{Addresses: []string{"::ffff:127.0.0.1"}}},
		"an inner name that is open":          {egress.Settings{AllowNetworks: loopback, AllowHosts: []string{"psp.internal"}}, "psp.internal", egresstest.Answer{Addresses: []string{"127.0.0.1"}}},
		"a name below one that is open":       {egress.Settings{AllowNetworks: loopback, AllowHosts: []string{"*.svc"}}, "psp.pay.svc", egresstest.Answer{Addresses: []string{"127.0.0.1"}}},
		"an address on a developer's machine": {egress.Settings{Dev: true}, "127.0.0.1", egresstest.Answer{}},
		"localhost on a developer's machine":  {egress.Settings{Dev: true}, "localhost", egresstest.Answer{Addresses: []string{"127.0.0.1"}}},
		"the second address when the first is bad": {egress.Settings{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, "pay.example",
			egresstest.Answer{Addresses: []string{"127.0.0.9", "127.0.0.1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.settings)
			w.names.Set(test.host, test.answer)
			if _, err := w.Check("https://" + test.host + ":" + strconv.Itoa(int(w.witness.Port()))); err != nil {
				t.Errorf("Check = %v, want nil", err)
			}
			before := w.witness.Connections()
			c, err := w.Dial(t.Context(), "t1", test.host, w.witness.Port())
			if err != nil {
				t.Fatalf("Dial = %v, want a connection", err)
			}
			_ = c.Close()
			if after := w.witness.Connections(); after-before < 2 {
				t.Errorf("the witness saw %d of a connection that was begun and arrived", after-before)
			}
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	w, target := newDestination(t, egress.Settings{}, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Location", r.Header.Get("To"))
		rw.WriteHeader(http.StatusTemporaryRedirect)
	})
	tried := 0
	for _, row := range egresstest.Forbidden(w.witness.Port()) {
		if row.Where != egresstest.AfterRedirect {
			continue
		}
		tried++
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("To", row.URL)
		answer, err := w.Transport("t1", 0).RoundTrip(r)
		if err != nil {
			t.Fatalf("%s: RoundTrip = %v, want the redirect", row.Name, err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusTemporaryRedirect || answer.Header.Get("Location") != row.URL {
			t.Errorf("%s: got status %d with Location %q, want the redirect as it was given", row.Name, answer.StatusCode, answer.Header.Get("Location"))
		}
	}
	if tried == 0 {
		t.Fatal("the corpus has no redirects")
	}
	// One attempt is the connection to the destination itself, which is reused.
	if n := w.witness.Connections(); n != 1 {
		t.Errorf("%d connections were made, want the one to the destination", n)
	}
}
