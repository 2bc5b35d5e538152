// Package date reads the dates that callers send.
//
// Every date input of the API and of the command line is read here. The package
// promises that a text that is a date in one place is the same date in all of
// them, and that what it accepts can be written back in RFC 3339, in UTC and with
// its own offset. It never reads a clock.
package date

import (
	"regexp"
	"strings"
	"time"
)

// The words of an error about a text that is no date.
const (
	Wanted       = "must be a date, as in 2030-08-26, or a date and time, as in 2030-08-26T19:23:57-07:00"
	WantedExpiry = Wanted + " or 8/26/2030 7:23:57 PM -07:00"
)

// Date is a day of UTC or an instant.
type Date struct {
	// Time is the instant, or the first instant of the day. It has the offset
	// that the text had, and UTC when the text had none.
	Time time.Time
	// Day is whether the text named a day and no time.
	Day bool
}

// iso is the extended form of ISO 8601. Go's parser also accepts hours of one
// digit and offsets of 24 hours, so the expression decides what is accepted.
var iso = regexp.MustCompile(`^(\d{4}-\d{2}-\d{2})(?:T(\d{2}:\d{2})(:\d{2})?([.,]\d+)?(Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?)?$`)

// Parse reads ISO 8601 in extended form. Seconds and offset are optional;
// without an offset the time is in UTC.
func Parse(text string) (Date, bool) {
	m := iso.FindStringSubmatch(strings.ToUpper(text))
	if m == nil || m[3] == "" && m[4] != "" { // no fractions of minutes
		return Date{}, false
	}
	day, minutes, seconds, fraction, offset := m[1], m[2], m[3], m[4], m[5]
	if minutes == "" {
		return read(time.DateOnly, day, true)
	}
	if seconds == "" {
		seconds = ":00"
	}
	switch {
	case offset == "":
		offset = "Z"
	case offset != "Z" && !strings.Contains(offset, ":"):
		offset = offset[:3] + ":" + offset[3:]
	}
	return read(time.RFC3339Nano, day+"T"+minutes+seconds+fraction+offset, false)
}

// ParseParameter is Parse for a parameter of a query, in which a + that the
// client did not escape arrives as a space.
func ParseParameter(text string) (Date, bool) { return Parse(strings.ReplaceAll(text, " ", "+")) }

// local is the form of dates that only the expiry of a token has. Go's parser
// also accepts the hour 0 of a clock with twelve hours.
var local = regexp.MustCompile(`^\d{1,2}/\d{1,2}/\d{4}( (?:0?[1-9]|1[0-2]):\d{2}:\d{2} [AP]M( [+-](?:[01]\d|2[0-3]):[0-5]\d)?)?$`)

// ParseExpiry reads what Parse reads, and M/D/YYYY and
// M/D/YYYY h:mm:ss AM|PM ±hh:mm, in which the offset is optional.
func ParseExpiry(text string) (Date, bool) {
	if d, ok := Parse(text); ok {
		return d, true
	}
	text = strings.ToUpper(text)
	m := local.FindStringSubmatch(text)
	switch {
	case m == nil:
		return Date{}, false
	case m[1] == "":
		return read("1/2/2006", text, true)
	case m[2] == "":
		return read("1/2/2006 3:04:05 PM", text, false)
	}
	return read("1/2/2006 3:04:05 PM -07:00", text, false)
}

// last is the last instant that RFC 3339 can write in UTC, in the precision of
// the store.
var last = time.Date(9999, time.December, 31, 23, 59, 59, 999_999_000, time.UTC)

// read parses a text of a known form. West of Greenwich the end of 9999 is after
// last: it counts as last, because people write it to mean never.
func read(form, text string, day bool) (Date, bool) {
	t, err := time.Parse(form, text)
	if err != nil || t.Year() < 1 || t.UTC().Year() < 1 {
		return Date{}, false
	}
	// A fixed zone, so that the result does not depend on the zone of the machine.
	_, offset := t.Zone()
	zone := time.UTC
	if offset != 0 {
		zone = time.FixedZone("", offset)
	}
	if t.After(last) {
		t = last
	}
	return Date{Time: t.In(zone), Day: day}, true
}
