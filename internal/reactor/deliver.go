package reactor

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// A delivery is tried ten times. The waits between the tries double from the
// first one on, and come to about two and a half hours.
const (
	deliveryTries = 10
	firstWait     = 18 * time.Second
	// deliveryTime is how long one try may take. It is less than a lease, so
	// that no other node begins the next try meanwhile.
	deliveryTime = 10 * time.Second
	maxAnswer    = 64 << 10 // bytes of a receiver's answer that are read
)

var errCallback = fault.Field("callback_url", "is not an address that this service may call")

func (s *Service) checkCallback(address string) error {
	if s.parts.CheckURL == nil {
		return errCallback
	}
	if err := s.parts.CheckURL(address); err != nil {
		if told := fault.Of(err); told.Kind() == fault.Invalid {
			var f fault.Fields
			f.Add("callback_url", told.Detail())
			return f.Err()
		}
		return err
	}
	return nil
}

// problem is the error body of a run that failed.
func (s *Service) problem(err error, j job) result {
	p := s.parts.Problem(err, j.origin.TraceID)
	body, _ := json.Marshal(p) // texts and numbers: it cannot fail
	return result{p.Status, body}
}

// deliver sends a result to its callback, and decides what becomes of it.
func (s *Service) deliver(ctx context.Context, keys *keyring.Keys, h hold, p store.Parcel, j job) error {
	if j.gone {
		// Said instead, to whoever waits for the rest.
		res := s.problem(errTooLate, j)
		j.status, j.payload = res.status, res.body
	}
	secrets, err := s.parts.Secrets(ctx, keys.Tenant())
	if err != nil { // our own trouble does not use a try up
		return errors.Join(fmt.Errorf("get callback secrets: %w", err), s.giveBack(ctx, h, lease))
	}
	err = s.send(ctx, keys.Tenant(), secrets, p, j)
	switch {
	case err == nil:
		s.delivered.Inc()
	case ctx.Err() != nil: // the server stops: no fault of the receiver
		return s.giveBack(ctx, h, 0)
	case h.claim >= deliveryTries:
		s.givenUp.Inc()
		s.options.Logger.Warn("a callback was given up", "request", p.ID, "tries", h.claim)
	default:
		wait := firstWait << (h.claim - 1)
		wait += time.Duration(rand.Int64N(int64(wait / 10)))
		return s.move(ctx, h, s.options.Now().Add(wait), h.claim)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	// Whoever else may hold it by now need not deliver it again.
	err = s.parts.Store.Update(ctx, keys.Tenant(), func(tx store.Tx) error { return tx.DeleteParcel(ctx, p.Kind, p.ID) })
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

var errNotTaken = errors.New("the receiver did not take it")

// send makes one try. A redirect is not followed, and is not a success.
func (s *Service) send(ctx context.Context, tenant string, secrets []secret.Text, p store.Parcel, j job) error {
	ctx, cancel := context.WithTimeout(ctx, deliveryTime)
	defer cancel()
	body := j.payload
	if len(body) == 0 {
		body = []byte("null") // a custom answer without a body
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, j.callback, bytes.NewReader(body))
	if err != nil {
		return errNotTaken // its words repeat the address
	}
	stamp := strconv.FormatInt(s.options.Now().Unix(), 10)
	r.Header.Set("Content-Type", api.MediaJSON)
	r.Header.Set("User-Agent", "tokenkeep")
	r.Header.Set(api.Header(s.options.HeaderPrefix, api.TraceID), j.origin.TraceID)
	r.Header.Set(api.Header(s.options.HeaderPrefix, api.ReactorID), p.Group)
	r.Header.Set(api.Header(s.options.HeaderPrefix, api.RequestID), p.ID)
	r.Header.Set("Webhook-Id", p.ID)
	r.Header.Set("Webhook-Timestamp", stamp)
	r.Header.Set("Webhook-Signature", sign(secrets, p.ID, stamp, body))
	answer, err := s.parts.Transport(tenant, deliveryTime).RoundTrip(r)
	if err != nil {
		return errNotTaken
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer)) // so that the connection can be used again
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return errNotTaken
	}
	return nil
}

// sign signs after Standard Webhooks, once for each secret that is valid.
func sign(secrets []secret.Text, id, stamp string, body []byte) string {
	var list []string
	for _, text := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text.Reveal(), "whsec_"))
		if err != nil {
			continue // it was made by us: see directory
		}
		mac := hmac.New(sha256.New, key)
		_, _ = io.WriteString(mac, id+"."+stamp+".")
		_, _ = mac.Write(body)
		list = append(list, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(list, " ")
}
