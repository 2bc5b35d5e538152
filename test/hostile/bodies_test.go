// Package hostile_test sends whole servers what nobody should send: bodies at
// and over every bound, and connections that are slow, idle and many. The
// server refuses in its own words, and serves everybody else meanwhile.
package hostile_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// bomb is a body that is small, and large once it is expanded.
func bomb(t *testing.T) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.CopyN(z, zeros{}, 20<<20)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

func TestEveryRouteRefusesBadBodies(t *testing.T) {
	const maxBody = 1 << 20
	zipped := bomb(t)
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"max_body": "1048576"}})
	tenant := k.Tenant(t)
	keys := map[string]string{"management": tenant.Application.Key}
	keys["private"] = k.Application(t, tenant.Tenant.ID, api.CreateApplication{
		Type: "private", Permissions: []string{"token:create", "token:read", "token:update", "token:delete", "token:search", "token:use"},
	}).Key
	keys["revealing"] = k.Application(t, tenant.Tenant.ID, api.CreateApplication{
		Type: "private", Rules: []api.Rule{{Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read"}}},
	}).Key
	for name, c := range map[string]struct {
		body   string
		status int
		header []string
	}{
		"too deep":                 {strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), 400, nil},
		"very deep":                {strings.Repeat("[", maxBody-1), 400, nil},
		"too large":                {`{"a":"` + strings.Repeat("x", maxBody) + `"}`, 413, nil},
		"a name twice":             {`{"a":1,"a":2}`, 400, nil},
		"a name twice, by escapes": {`{"a":1,"\u0061":2}`, 400, nil},
		"not UTF-8":                {"{\"a\":\"\xff\xfe\"}", 400, nil},
		"half a surrogate pair":    {`{"a":"\ud800"}`, 400, nil},
		"two documents":            {`{}{}`, 400, nil},
		"no document":              {`{`, 400, nil},
		"a bomb":                   {zipped, 415, []string{"Content-Encoding", "gzip"}},
		"a bomb in a bomb":         {zipped, 415, []string{"Content-Encoding", "identity, br,GZIP"}},
		"a bomb that does not say": {zipped, 400, nil},
		"another media type":       {`{}`, 415, []string{"Content-Type", "text/plain"}},
		"a form":                   {`a=b`, 415, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		"two media types":          {`{}`, 415, []string{"Content-Type", "application/json, text/plain"}},
	} {
		for _, r := range k.Routes() {
			if r.Body != httpapi.JSON && r.Body != httpapi.MergePatch {
				continue
			}
			key := keys["private"]
			if !r.Permission.OnTokens() && r.Auth != httpapi.PrivateKey {
				key = keys["management"]
			}
			method, path, _ := strings.Cut(r.Pattern, " ")
			path = strings.NewReplacer("{id}", "b7f1d3a0-0000-4000-8000-000000000001", "{key_id}", "x").Replace(path)
			got := k.Call(t, method, path, key, c.body, c.header...)
			if got.Status != c.status {
				t.Errorf("%s to %s = %s, want %d", name, r.Pattern, got, c.status)
			}
			got.CheckProblem(t)
		}
	}
	// Whatever a number says, it is kept as it is written. What looks at the document reads numbers as floats.
	k.Client.Transport.(*openapitest.Watch).Except("POST /tokens")
	for _, number := range []string{"1e999999999", "-0", strings.Repeat("9", 100_000), "1." + strings.Repeat("0", 10_000)} {
		var made api.Token
		k.Call(t, "POST", "/tokens", keys["revealing"], `{"type":"token","data":`+number+`}`).Into(t, 201, &made)
		k.Call(t, "GET", "/tokens/"+made.ID, keys["revealing"], "").Into(t, 200, &made)
		if string(made.Data) != number {
			t.Errorf("a number of %d characters came back as %.50s", len(number), made.Data)
		}
	}
}
