package token

import (
	"time"

	"github.com/tokenkeep/tokenkeep/internal/date"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// parseExpiry reads an expiry with the offset that it came with.
func parseExpiry(text string) (store.Expiry, bool) {
	d, ok := date.ParseExpiry(text)
	if !ok || store.At(d.Time).IsZero() { // the instant that the store reads as never
		return store.Expiry{}, false
	}
	_, offset := d.Time.Zone()
	return store.Expiry{At: store.At(d.Time), OffsetSeconds: offset}, true
}

const (
	timeForm = "2006-01-02T15:04:05.000000-07:00"
	minute   = 60
)

// expiryText writes an expiry in RFC 3339 with its own offset.
func expiryText(e store.Expiry) string {
	return e.At.Time().In(time.FixedZone("", e.OffsetSeconds-e.OffsetSeconds%minute)).Format(timeForm)
}

func timeText(t store.Time) string { return t.Time().Format(timeForm) }
