package jobs

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

const (
	// SendTime is how long a receiver has to take a message. A lease of the kind
	// that sends is longer, so that no other node begins the next try meanwhile.
	SendTime  = 10 * time.Second
	maxAnswer = 64 << 10 // bytes of a receiver's answer that are read
)

// ErrNotTaken says that a receiver did not take a message. It has no cause: the
// words of one would repeat the address.
var ErrNotTaken = errors.New("jobs: the receiver did not take the message")

// Sender delivers messages to addresses that tenants chose, signed after
// Standard Webhooks.
type Sender struct {
	Now       func() time.Time
	Transport func(tenant string, firstByte time.Duration) http.RoundTripper
}

// Message is what a receiver gets. Every try of one message has the same id.
type Message struct {
	ID      string
	URL     string
	Header  map[string]string // beside those of Standard Webhooks
	Body    []byte            // JSON
	Secrets []secret.Text     // each of them signs
}

// Receipt tells how a try went.
type Receipt struct {
	Status int // of the receiver's answer; 0 when there was none
	Took   time.Duration
}

// Taken reports whether the receiver took the message: with a status from 200 to
// 299.
func (r Receipt) Taken() bool { return r.Status >= 200 && r.Status <= 299 }

// Send makes one try, and returns ErrNotTaken unless the receiver took the message.
func (s Sender) Send(ctx context.Context, tenant string, m Message) error {
	if !s.Deliver(ctx, tenant, m).Taken() {
		return ErrNotTaken
	}
	return nil
}

// Deliver makes one try. A redirect is not followed.
func (s Sender) Deliver(ctx context.Context, tenant string, m Message) Receipt {
	began := s.Now()
	status := s.post(ctx, tenant, m)
	return Receipt{status, max(s.Now().Sub(began), 0)}
}

// post returns the status of the answer; 0 when there was none.
func (s Sender) post(ctx context.Context, tenant string, m Message) int {
	ctx, cancel := context.WithTimeout(ctx, SendTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return 0
	}
	stamp := strconv.FormatInt(s.Now().Unix(), 10)
	for name, value := range maps.All(m.Header) {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", api.MediaJSON)
	r.Header.Set("User-Agent", "tokenkeep")
	r.Header.Set("Webhook-Id", m.ID)
	r.Header.Set("Webhook-Timestamp", stamp)
	r.Header.Set("Webhook-Signature", sign(m.Secrets, m.ID, stamp, m.Body))
	answer, err := s.Transport(tenant, SendTime).RoundTrip(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer)) // so that the connection can be used again
	return answer.StatusCode
}

// sign returns the signatures of a message, one for each secret.
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
