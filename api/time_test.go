package api_test

import (
	"encoding/json"
	"testing"
	"time"

	v2 "github.com/go-json-experiment/json"

	"github.com/tokenkeep/tokenkeep/api"
)

// The server writes with one library and Go clients read with another.
var libraries = map[string]struct {
	marshal   func(any) ([]byte, error)
	unmarshal func([]byte, any) error
}{
	"encoding/json":           {json.Marshal, json.Unmarshal},
	"go-json-experiment/json": {func(v any) ([]byte, error) { return v2.Marshal(v) }, func(b []byte, v any) error { return v2.Unmarshal(b, v) }},
}

func TestTimesAreWrittenWithAnOffsetAndMicroseconds(t *testing.T) {
	cases := map[string]struct {
		made api.Made
		want string
	}{
		"utc":             {at(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)), `{"created_at":"2030-01-02T03:04:05.000000+00:00"}`},
		"another zone":    {at(time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))), `{"created_at":"2030-01-02T02:04:05.000000+00:00"}`},
		"finer than that": {at(time.Date(2030, 1, 2, 3, 4, 5, 123456789, time.UTC)), `{"created_at":"2030-01-02T03:04:05.123456+00:00"}`},
		"none":            {api.Made{}, `{}`},
	}
	for name, c := range cases {
		for library, l := range libraries {
			got, err := l.marshal(c.made)
			if err != nil || string(got) != c.want {
				t.Errorf("%s: %s writes %s, %v, want %s", name, library, got, err, c.want)
			}
		}
	}
}

func TestTimesAreReadFromAnyOffset(t *testing.T) {
	want := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	cases := map[string]struct {
		in   string
		want time.Time
		ok   bool
	}{
		"utc":           {`{"created_at":"2030-01-02T03:04:05Z"}`, want, true},
		"lower case":    {`{"created_at":"2030-01-02t03:04:05z"}`, want, true},
		"an offset":     {`{"created_at":"2030-01-02T04:04:05+01:00"}`, want, true},
		"as we write":   {`{"created_at":"2030-01-02T03:04:05.000000+00:00"}`, want, true},
		"null":          {`{"created_at":null}`, time.Time{}, true},
		"a day":         {`{"created_at":"2030-01-02"}`, time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC), true},
		"no offset":     {`{"created_at":"2030-01-02T03:04:05"}`, want, true},
		"escaped":       {`{"created_at":"2030-01-02T04:04:05\u002b0100"}`, want, true},
		"the last day":  {`{"created_at":"9999-12-31"}`, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), true},
		"the year 1":    {`{"created_at":"0001-01-01T00:00:00Z"}`, time.Time{}, false},
		"a number":      {`{"created_at":1893553445}`, time.Time{}, false},
		"another month": {`{"created_at":"2030-13-02T03:04:05Z"}`, time.Time{}, false},
	}
	for name, c := range cases {
		for library, l := range libraries {
			var got api.Made
			err := l.unmarshal([]byte(c.in), &got)
			if (err == nil) != c.ok || !got.CreatedAt.Equal(c.want) {
				t.Errorf("%s: %s reads %s as %v, %v, want %v, ok %t", name, library, c.in, got.CreatedAt, err, c.want, c.ok)
			}
		}
	}
}

func at(t time.Time) api.Made { return api.Made{CreatedAt: api.Time{Time: t}} }
