package store

import "time"

// Time is an instant with the precision that every backend keeps: microseconds
// since 1970 in UTC. The zero Time is no time at all.
type Time int64

// At returns the instant of t, cut to microseconds.
func At(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	return Time(t.UnixMicro())
}

// Time returns the instant in UTC; the zero time.Time when there is none.
func (t Time) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(t)).UTC()
}

// IsZero reports whether there is no time.
func (t Time) IsZero() bool { return t == 0 }
