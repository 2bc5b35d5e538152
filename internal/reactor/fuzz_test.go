package reactor_test

import (
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
)

// FuzzInvocation: what is taken is within the bounds of the API, and what is
// not is the caller's fault.
func FuzzInvocation(f *testing.F) {
	for _, s := range []string{
		`{"args":{"a":"{{ x }}"}}`, `{"callback_url":"https://a.example","timeout_ms":10000}`, `{"callbackUrl":"","timeoutMs":1e5}`, `{"timeout_ms":99999999999999999999}`, `[]`, `{"args":null,"callback_url":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := jsonvalue.Parse(b)
		if err != nil {
			return
		}
		in, err := reactor.ParseInvocation(body)
		switch {
		case err != nil && fault.Of(err).Kind() != fault.Invalid:
			t.Errorf("%s fails with %v", b, err)
		case err == nil && in.Timeout != 0 && (in.Timeout < 10*time.Second || in.Timeout > 210*time.Second):
			t.Errorf("%s may run for %v", b, in.Timeout)
		}
	})
}
