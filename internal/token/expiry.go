package token

import (
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// expiryForms are what an expiry may be written as. The first two are those of
// the API; a time without an offset is in UTC, a day begins at midnight UTC.
var expiryForms = []string{
	"1/2/2006 3:04:05 PM -07:00",
	"1/2/2006",
	"1/2/2006 3:04:05 PM",
	time.RFC3339Nano,
}

// maxOffset is the most that a time may be away from UTC.
const maxOffset = 24 * 60 * 60

// parseExpiry reads an expiry with the offset that it came with.
func parseExpiry(text string) (store.Expiry, bool) {
	text = strings.ToUpper(text)
	for _, form := range expiryForms {
		t, err := time.Parse(form, text)
		if err != nil {
			continue
		}
		_, offset := t.Zone()
		// The bounds keep what is written back readable: four digits of year
		// in every zone, and hours that a clock has. The instant that stands
		// for never is none that can be asked for.
		if offset <= -maxOffset || offset >= maxOffset || t.UTC().Year() < 1 || t.UTC().Year() > 9998 || store.At(t).IsZero() {
			return store.Expiry{}, false
		}
		return store.Expiry{At: store.At(t), OffsetSeconds: offset}, true
	}
	return store.Expiry{}, false
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
