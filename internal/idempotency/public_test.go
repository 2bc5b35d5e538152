package idempotency_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// browser is somebody with the key of a public application, at an address.
func (w *world) browser(application, address string) access.Caller {
	w.t.Helper()
	return accesstest.Application(w.t, w.tenant, application, access.Public, nil, access.TokenCreate).WithOrigin(access.Origin{Address: address})
}

// sending is a request to make a token of a body.
func sending(key, body string) idempotency.Request {
	r := creating(key)
	r.Body = []byte(body)
	return r
}

// outcome sends a request and says what becomes of it: it is "new", its key is
// "ignored", or it gets an answer or an error. A new one is answered with its
// own address and body.
func (w *world) outcome(c access.Caller, r idempotency.Request) string {
	w.t.Helper()
	answer, a, err := w.Begin(w.t.Context(), c, r)
	switch {
	case err != nil:
		f := fault.Of(err)
		return strings.TrimSpace(f.Kind().Error() + " " + f.Code() + ": " + f.Detail())
	case answer != nil:
		return "replayed " + string(answer.Body)
	case a == nil:
		return "ignored"
	}
	body := append([]byte(c.Origin().Address+" "), r.Body...)
	if err := w.keep(w.t.Context(), a, w.tenant, response.Response{Status: 201, Body: body}, nil); err != nil {
		w.t.Fatalf("Keep = %v", err)
	}
	w.release(a)
	return "new"
}

const reused = "unprocessable idempotency_key_reused: this idempotency key was used with another body"

var (
	long  = strings.Repeat("é", 22)
	short = strings.Repeat("é", 21)
)

func TestALongKeyOfAPublicApplicationIsBoundToItsBody(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		const body = `{"type":"token","data":1}`
		one, other := w.browser(app, "192.0.2.1"), w.browser(app, "198.51.100.7")
		if got := w.outcome(one, sending(long, body)); got != "new" {
			t.Fatalf("the first request: %s", got)
		}
		again := "replayed 192.0.2.1 " + body
		check := func(when string) {
			t.Helper()
			for name, test := range map[string]struct {
				c    access.Caller
				r    idempotency.Request
				want string
			}{
				"the same":                           {one, sending(long, body), again},
				"the same from another address":      {other, sending(long, body), again},
				"another body":                       {one, sending(long, `{"type":"token","data":2}`), reused},
				"the same body with another space":   {one, sending(long, `{"type":"token", "data":1}`), reused},
				"a body that begins like it":         {one, sending(long, body+" "), reused},
				"no body":                            {one, sending(long, ""), reused},
				"another body, from another address": {other, sending(long, "x"), reused},
			} {
				if got := w.outcome(test.c, test.r); got != test.want {
					t.Errorf("%s, %s: %s, want %s", when, name, got, test.want)
				}
			}
		}
		check("at once")
		if err := w.ring.RotateTenant(t.Context(), w.tenant, nil); err != nil {
			t.Fatal(err)
		}
		check("after the keys were rotated")
		if got := w.outcome(w.browser("app2", "192.0.2.1"), sending(long, "x")); got != "new" {
			t.Errorf("another public application: %s, want new", got)
		}
		// A row without a body: all bodies are the same.
		for i, want := range []string{"new", "replayed 192.0.2.1 "} {
			r := sending(long, "")
			r.Path = "/sessions"
			if got := w.outcome(one, r); got != want {
				t.Errorf("request %d without a body: %q, want %q", i+1, got, want)
			}
		}
	})
}

func TestAShortKeyOfAPublicApplicationIsOfOneAddressAndBody(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		const body, other = `{"type":"token","data":1}`, `{"type":"token","data":2}`
		for _, test := range []struct {
			name, address, body, want string
		}{
			{"the first", "192.0.2.1", body, "new"},
			{"the same", "192.0.2.1", body, "replayed 192.0.2.1 " + body},
			{"the same in another form", "::ffff:192.0.2.1", body, "replayed 192.0.2.1 " + body},
			{"another body", "192.0.2.1", other, "new"},
			{"that again", "192.0.2.1", other, "replayed 192.0.2.1 " + other},
			{"another address", "192.0.2.2", body, "new"},
			{"that again", "192.0.2.2", body, "replayed 192.0.2.2 " + body},
			{"the first again", "192.0.2.1", body, "replayed 192.0.2.1 " + body},
			{"an address of IPv6", "2001:db8:1:2::1", body, "new"},
			{"another of the same /64", "2001:db8:1:2:ffff::9", body, "replayed 2001:db8:1:2::1 " + body},
			{"one of the next /64", "2001:db8:1:3::1", body, "new"},
			{"no body", "192.0.2.1", "", "ignored"},
			{"an address that is not known", "", body, "ignored"},
			{"that again", "invalid IP", body, "ignored"},
		} {
			if got := w.outcome(w.browser(app, test.address), sending(short, test.body)); got != test.want {
				t.Errorf("%s: %s, want %s", test.name, got, test.want)
			}
		}
	})
}

// Private applications and sessions have their keys for themselves.
func TestOtherCallersKeysAreNotBoundToTheBody(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		for name, c := range map[string]access.Caller{
			"a private application": w.caller(app),
			"a session":             accesstest.Session(t, w.tenant, app, "s", nil, access.TokenCreate),
		} {
			for _, key := range []string{short, long} {
				if got := w.outcome(c, sending(key, "one")); got != "new" {
					t.Errorf("%s: the first request: %s", name, got)
				}
				for address, body := range map[string]string{"192.0.2.1": "two", "": ""} {
					if got, want := w.outcome(c.WithOrigin(access.Origin{Address: address}), sending(key, body)), "replayed  one"; got != want {
						t.Errorf("%s with the body %q: %s, want %s", name, body, got, want)
					}
				}
			}
		}
	})
}

// digests opens every record and returns what it stores of a body.
func (w *world) digests() (list [][]byte) {
	w.t.Helper()
	keys, err := w.ring.For(w.t.Context(), w.tenant)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range w.parcels() {
		b, err := w.ring.OpenParcel(w.t.Context(), keys, p)
		if err != nil {
			w.t.Fatal(err)
		}
		var r struct {
			BodyDigest []byte `json:"body_digest"`
		}
		if err := json.Unmarshal(b, &r); err != nil {
			w.t.Fatal(err)
		}
		list = append(list, r.BodyDigest)
	}
	return list
}

// A body may hold a card number, of which there are few enough to try them all.
func TestTheDigestOfABodyTellsNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		const card = `{"type":"card","data":{"number":"4242424242424242"}}`
		another := long + "x"
		w.outcome(w.browser(app, "192.0.2.1"), sending(long, card))
		w.outcome(w.browser(app, "192.0.2.1"), sending(another, card))
		w.outcome(w.browser("app2", "192.0.2.1"), sending(long, card))
		digests := w.digests()
		if len(digests) != 3 {
			t.Fatalf("there are %d records, want 3", len(digests))
		}
		for i, d := range digests {
			if len(d) != 16 {
				t.Errorf("a digest has %d bytes, want the 16 of a keyed hash", len(d))
			}
			for _, other := range digests[i+1:] {
				if bytes.Equal(d, other) {
					t.Error("one body has the same digest for two callers or keys")
				}
			}
		}
		w.moveToNewTenant()
		w.outcome(w.browser(app, "192.0.2.1"), sending(long, card))
		for _, d := range digests {
			if bytes.Equal(d, w.digests()[0]) {
				t.Error("one body has the same digest in two tenants")
			}
		}
	})
}

// stored puts a record under the key of a request, in the form of the release
// before this one.
func (w *world) stored(c access.Caller, r idempotency.Request, record string) {
	w.t.Helper()
	_, a, err := w.Begin(w.t.Context(), c, r)
	if err != nil || a == nil {
		w.t.Fatalf("Begin = %v, %v", a, err)
	}
	if err := w.keep(w.t.Context(), a, w.tenant, response.Response{Status: 299}, nil); err != nil {
		w.t.Fatal(err)
	}
	w.release(a)
	keys, err := w.ring.For(w.t.Context(), w.tenant)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range w.parcels() {
		b, err := w.ring.OpenParcel(w.t.Context(), keys, p)
		if err != nil {
			w.t.Fatal(err)
		}
		if !bytes.Contains(b, []byte(`"status":299`)) {
			continue
		}
		w.change(func(tx store.Tx) error {
			p := p
			p.Version++
			return errors.Join(keys.SealParcel(&p, nil, []byte(record)), tx.ReplaceParcel(w.t.Context(), p))
		})
	}
}

func TestRecordsOfTheReleaseBefore(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		const record = `{"status":201,"location":"/tokens/x","body":"b2xk"}`
		w.stored(w.caller(app), sending("key", "one"), record)
		if got := w.outcome(w.caller(app), sending("key", "two")); got != "replayed old" {
			t.Errorf("a private application: %s, want its answer", got)
		}
		if got, want := w.replays(), "allowed read token * Token result replayed by "+app+" from "; len(got) != 1 || got[0] != want {
			t.Errorf("the log has %q, want %q", got, want)
		}
		if got := w.outcome(accesstest.Caller(t, w.tenant, app, access.TokenRead), sending("key", "one")); !strings.HasPrefix(got, "forbidden") {
			t.Errorf("a private application that lost the permission: %s, want 403", got)
		}
		// Whether the body is that of the first request is not known.
		w.stored(w.browser(app, "192.0.2.1"), sending(long, "one"), record)
		if got, want := w.outcome(w.browser(app, "192.0.2.1"), sending(long, "one")), "conflict conflict: "+gone; got != want {
			t.Errorf("a public application: %s, want %s", got, want)
		}
		if n := len(w.replays()); n != 1 {
			t.Errorf("the log has %d replays, want 1", n)
		}
	})
}
