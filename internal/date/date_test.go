package date_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/date"
)

const written = "2006-01-02T15:04:05.000000-07:00"

func text(d date.Date, ok bool) string {
	switch {
	case !ok:
		return "none"
	case d.Day:
		return "day " + d.Time.Format(written)
	}
	return d.Time.Format(written)
}

func TestDatesAreISO8601InExtendedForm(t *testing.T) {
	for given, want := range map[string]string{
		"2030-08-26":                       "day 2030-08-26T00:00:00.000000+00:00",
		"2030-08-26T19:23":                 "2030-08-26T19:23:00.000000+00:00",
		"2030-08-26T19:23Z":                "2030-08-26T19:23:00.000000+00:00",
		"2030-08-26T19:23+0530":            "2030-08-26T19:23:00.000000+05:30",
		"2030-08-26T19:23:57":              "2030-08-26T19:23:57.000000+00:00",
		"2030-08-26T19:23:57Z":             "2030-08-26T19:23:57.000000+00:00",
		"2030-08-26t19:23:57z":             "2030-08-26T19:23:57.000000+00:00",
		"2030-08-26T19:23:57+00:00":        "2030-08-26T19:23:57.000000+00:00",
		"2030-08-26T19:23:57+0000":         "2030-08-26T19:23:57.000000+00:00",
		"2030-08-26T19:23:57-07:00":        "2030-08-26T19:23:57.000000-07:00",
		"2030-08-26T19:23:57-23:59":        "2030-08-26T19:23:57.000000-23:59",
		"2030-08-26T19:23:57.1234567":      "2030-08-26T19:23:57.123456+00:00",
		"2030-08-26T19:23:57,5Z":           "2030-08-26T19:23:57.500000+00:00",
		"2032-02-29":                       "day 2032-02-29T00:00:00.000000+00:00",
		"0001-01-01":                       "day 0001-01-01T00:00:00.000000+00:00",
		"9999-12-31":                       "day 9999-12-31T00:00:00.000000+00:00",
		"9999-12-31T23:59:59.9999999+0000": "9999-12-31T23:59:59.999999+00:00",
		"9999-12-31T23:59:59+14:00":        "9999-12-31T23:59:59.000000+14:00",
		"9999-12-31T23:59:59-07:00":        "9999-12-31T16:59:59.999999-07:00", // the last instant of UTC

		"": "none", "*": "none", "tomorrow": "none", "4242424242424242": "none", "20300826": "none", "2030-8-26": "none", "2030-08": "none", "2030-W35-1": "none",
		"2030-02-30": "none", "2030-13-01": "none", "0000-01-01": "none", "10000-01-01": "none", "-2030-08-26": "none", "0001-01-01T00:00:00+00:01": "none",
		"2030-08-26T": "none", "2030-08-26Z": "none", "2030-08-26T19": "none", "2030-08-26T1923": "none", "2030-08-26T9:23:57Z": "none", "2030-08-26 19:23:57": "none",
		"2030-08-26T24:00:00": "none", "2030-08-26T19:60": "none", "2030-08-26T19:23:60Z": "none", "2030-08-26T19:23.5": "none", "2030-08-26T19:23:57.Z": "none",
		"2030-08-26T19:23:57+24:00": "none", "2030-08-26T19:23:57+07:60": "none", "2030-08-26T19:23:57+7": "none", "2030-08-26T19:23:57 07:00": "none",
		" 2030-08-26": "none", "2030-08-26\n": "none", "٢٠٣٠-08-26": "none", "8/26/2030": "none",
	} {
		if got := text(date.Parse(given)); got != want {
			t.Errorf("Parse(%q) = %s, want %s", given, got, want)
		}
	}
}

func TestExpiriesAlsoTakeTheFormsOfTheContract(t *testing.T) {
	for given, want := range map[string]string{
		"8/26/2030":                       "day 2030-08-26T00:00:00.000000+00:00",
		"08/06/2030":                      "day 2030-08-06T00:00:00.000000+00:00",
		"8/26/2030 7:23:57 PM -07:00":     "2030-08-26T19:23:57.000000-07:00",
		"08/06/2030 07:03:07 am +05:30":   "2030-08-06T07:03:07.000000+05:30",
		"8/26/2030 12:00:00 AM":           "2030-08-26T00:00:00.000000+00:00",
		"8/26/2030 12:00:00 PM +00:00":    "2030-08-26T12:00:00.000000+00:00",
		"12/31/9999":                      "day 9999-12-31T00:00:00.000000+00:00",
		"12/31/9999 11:59:59 PM +00:00":   "9999-12-31T23:59:59.000000+00:00",
		"12/31/9999 11:59:59 PM -12:00":   "9999-12-31T11:59:59.999999-12:00",
		"2030-08-26":                      "day 2030-08-26T00:00:00.000000+00:00",
		"2030-08-26T19:23:57.123456-0300": "2030-08-26T19:23:57.123456-03:00",

		"8/26/2030 0:00:00 AM": "none", "8/26/2030 00:00:00 AM": "none", "8/26/2030 0:00:00 PM -07:00": "none", "8/26/2030 13:00:00 PM": "none",
		"26/8/2030": "none", "8/26/30": "none", "2/30/2030": "none", "1/1/0000": "none", "8/26/2030 7:23 PM": "none", "8/26/2030 7:23:57": "none",
		"8/26/2030 7:23:57 PM -7": "none", "8/26/2030 7:23:57 PM -0700": "none", "8/26/2030 7:23:57 PM 07:00": "none", "8/26/2030 7:23:57 PM +24:00": "none",
		"8/26/2030 7:23:57.5 PM": "none", "8/26/2030  7:23:57 PM": "none", "8/26/2030 PM": "none", "": "none",
	} {
		if got := text(date.ParseExpiry(given)); got != want {
			t.Errorf("ParseExpiry(%q) = %s, want %s", given, got, want)
		}
	}
}

func TestAPlusThatArrivesInAQueryAsASpaceCountsAsPlus(t *testing.T) {
	for given, want := range map[string]string{
		"2030-08-26T19:23:57 02:00": "2030-08-26T19:23:57.000000+02:00",
		"2030-08-26T19:23 0200":     "2030-08-26T19:23:00.000000+02:00",
		"2030-08-26T19:23:57+02:00": "2030-08-26T19:23:57.000000+02:00",
		"2030-08-26":                "day 2030-08-26T00:00:00.000000+00:00",
		"2030-08-26 19:23:57":       "none",
		"2030-08-26 02:00":          "none",
		" 2030-08-26":               "none",
	} {
		if got := text(date.ParseParameter(given)); got != want {
			t.Errorf("ParseParameter(%q) = %s, want %s", given, got, want)
		}
	}
}

func TestTheExamplesInErrorsAreDates(t *testing.T) {
	for words, parse := range map[string]func(string) (date.Date, bool){date.Wanted: date.Parse, date.WantedExpiry: date.ParseExpiry} {
		examples := strings.Split(strings.NewReplacer(", or a date and time, as in ", "|", " or ", "|", "must be a date, as in ", "").Replace(words), "|")
		if len(examples) < 2 {
			t.Errorf("%q has the examples %q", words, examples)
		}
		for _, e := range examples {
			if _, ok := parse(e); !ok {
				t.Errorf("%q is an example in an error and no date", e)
			}
		}
	}
}

// FuzzParse: what is accepted is written back as RFC 3339, in UTC and with its
// offset, and is then read as the same instant by every function.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"8/26/2040 7:23:57 PM -07:00", "8/26/2040", "2040-08-26T19:23:57.123456Z", "2040-08-26T19:23+0530", "2040-08-26", "1/1/0001",
		"12/31/9999 11:59:59 PM -23:59", "9999-12-31T23:59:59.9999999-07:00", "0001-01-01T00:00:00+00:00", "8/26/2040 0:00:00 AM"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, ok := date.ParseExpiry(s)
		if plain, isISO := date.Parse(s); isISO && (!ok || !plain.Time.Equal(d.Time) || plain.Day != d.Day) {
			t.Errorf("%q is the date %v, and %v as an expiry", s, plain, d)
		}
		if !ok {
			return
		}
		for _, back := range []string{d.Time.Format(written), d.Time.UTC().Format(written)} {
			if _, err := time.Parse(time.RFC3339, back); err != nil || len(back) != len(written) {
				t.Errorf("%q is written back as %s: %v", s, back, err)
			}
			for name, parse := range map[string]func(string) (date.Date, bool){"Parse": date.Parse, "ParseExpiry": date.ParseExpiry, "ParseParameter": date.ParseParameter} {
				if again, ok := parse(back); !ok || again.Time.UnixMicro() != d.Time.UnixMicro() {
					t.Errorf("%s(%s), made from %q, = %v, %t", name, back, s, again, ok)
				}
			}
		}
	})
}
