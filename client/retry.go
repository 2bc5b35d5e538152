package client

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	firstWait = 250 * time.Millisecond
	mostWait  = 8 * time.Second
	// mostAsked is the longest Retry-After that a call waits for by itself.
	mostAsked = time.Minute
)

// again says whether a call that failed is tried again, and after what wait.
// tried is how often it was tried again already.
func (c *caller) again(r request, err error, tried int) (wait time.Duration, again bool) {
	if err == nil || tried >= c.retries || r.open {
		return 0, false
	}
	var refusal *Error
	if !r.reads && !r.keyed && (r.method == http.MethodPost || r.method == http.MethodPatch) {
		// Once more could be once too often, unless the service says that it
		// did nothing. Keyed rows are known again: once more gets the answer of
		// the first try.
		if !errors.As(err, &refusal) || refusal.Status != http.StatusTooManyRequests && refusal.Status != http.StatusServiceUnavailable {
			return 0, false
		}
	}
	var broken *brokenError
	switch {
	case errors.As(err, &refusal):
		// A first try whose connection broke may still be at work.
		inFlight := (r.keyed || r.reads) && refusal.Status == http.StatusConflict && refusal.RetryAfter > 0
		if (!isPassing(refusal.Status) || r.runs) && !inFlight || refusal.RetryAfter > mostAsked {
			return 0, false
		}
		return max(refusal.RetryAfter, backoff(tried)), true
	case errors.As(err, &broken):
		var certificate *tls.CertificateVerificationError
		return backoff(tried), !errors.As(err, &certificate)
	}
	return 0, false
}

// isPassing reports whether a status may be another one the next time.
func isPassing(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return status >= 500
}

// backoff doubles with every try, up to a bound. Half of it is chance, so that
// clients which failed together do not come back together.
func backoff(tried int) time.Duration {
	d := mostWait
	if tried < 5 {
		d = min(firstWait<<tried, mostWait)
	}
	return d/2 + rand.N(d/2)
}

// retryAfter reads the header of that name: seconds or a date.
func (c *caller) retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(c.now()))
	}
	return 0
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
