package idempotency_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// TestHistoriesOfIdempotentRequestsAreLinearizable lets callers ask under
// shared keys while servers are killed, and asks a checker whether what they
// saw can have happened one after the other.
func TestHistoriesOfIdempotentRequestsAreLinearizable(t *testing.T) {
	storetest.Long(t)
	t.Run("sqlite", func(t *testing.T) { checkHistory(t, newFarm(t, 1, "")) })
	t.Run("postgres", func(t *testing.T) { checkHistory(t, newFarm(t, 2, pgtest.Database(t))) })
}

// historian asks and writes down what was asked, when, and what was answered.
type historian struct {
	f      *farm
	client *http.Client
	key    string // of the application
	begun  time.Time

	mu      sync.Mutex // guards history
	history []porcupine.Operation
}

func checkHistory(t *testing.T, f *farm) {
	const callers, atOnce = 4, 4
	h := &historian{f: f, begun: time.Now(), key: f.application(t, "token:create", "token:read", "token:update")}
	transport := &http.Transport{MaxIdleConnsPerHost: callers * atOnce}
	defer transport.CloseIdleConnections()
	h.client = &http.Client{Transport: transport}

	next := make(chan int)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for k := range next {
				change := h.creation(k)
				if k%2 == 1 {
					change = h.patch(k)
				}
				var together sync.WaitGroup
				for caller := range callers {
					together.Go(func() { h.askUntilTold(k, caller, change) })
				}
				together.Wait()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for k := range storetest.Rounds(400, 10_000) {
			next <- k
		}
		close(next)
		wg.Wait()
	}()
	kills := f.killUntil(done, callers, 100*time.Millisecond)
	lost := 0
	for _, o := range h.history {
		if o.Return == math.MaxInt64 {
			lost++
		}
	}
	t.Logf("%d questions, %d of them without an answer, %d kills", len(h.history), lost, kills)
	if kills == 0 || lost == 0 {
		t.Error("the kills met nothing: the test proves nothing")
	}
	if got := porcupine.CheckOperationsTimeout(idempotent.ToModel(), h.history, 5*time.Minute); got != porcupine.Ok {
		t.Errorf("the history is %s, want %s", got, porcupine.Ok)
		h.accuse(t)
	}
}

// accuse names the keys whose history cannot have happened.
func (h *historian) accuse(t *testing.T) {
	for _, part := range idempotent.Partition(h.history) {
		if !porcupine.CheckOperations(idempotent.ToModel(), part) {
			for _, o := range part {
				t.Logf("%d to %d: %+v → %+v", o.Call, o.Return, o.Input, o.Output)
			}
			return
		}
	}
}

// change is a request of which every caller sends its own form, and where what
// it did is seen.
type change struct {
	method, path string
	body         func(caller int) string
	look         string
}

// creation makes a token that names its maker.
func (h *historian) creation(k int) change {
	return change{"POST", "/tokens", func(caller int) string {
		return fmt.Sprintf(`{"type":"token","data":"x","metadata":{"key":"%d","writer":"%d"}}`, k, caller)
	}, fmt.Sprintf("/tokens?metadata.key=%d", k)}
}

// patch writes the name of its writer into a token that is there.
func (h *historian) patch(k int) change {
	id := fmt.Sprint("patched-", k)
	for ; ; waittest.Sometime(5 * time.Millisecond) {
		status, _, _, err := h.send("POST", "/tokens", "", fmt.Sprintf(`{"id":%q,"type":"token","data":"x"}`, id))
		if err == nil && (status == http.StatusCreated || status == http.StatusConflict) {
			break
		}
	}
	return change{"PATCH", "/tokens/" + id, func(caller int) string {
		return fmt.Sprintf(`{"metadata":{"writer":"%d"}}`, caller)
	}, "/tokens?id=" + id}
}

// askUntilTold sends a change under a key until it is answered for good, with
// looks at what is there in between.
func (h *historian) askUntilTold(k, caller int, c change) {
	for ; ; waittest.Sometime(10 * time.Millisecond) {
		if rand.IntN(3) == 0 {
			h.look(k, c)
		}
		from := h.now()
		status, header, body, err := h.send(c.method, c.path, fmt.Sprint("key ", k), c.body(caller))
		q := question{key: k, caller: caller}
		var made api.Token
		switch {
		case err != nil:
			h.note(q, from, told{})
			continue
		case status == http.StatusConflict || status == http.StatusServiceUnavailable:
			h.note(q, from, told{refused: true})
			continue
		case status >= 300 || json.Unmarshal([]byte(body), &made) != nil:
			h.f.t.Errorf("key %d, caller %d: %d %s", k, caller, status, body)
			h.f.settle()
			return
		}
		writer, _ := strconv.Atoi(made.Metadata["writer"])
		replayed := header.Get(api.Header(api.DefaultPrefix, api.IdempotentReplayed)) == "true"
		h.note(q, from, told{known: true, replayed: replayed, writer: writer, body: body})
		h.f.settle()
		h.look(k, c)
		return
	}
}

// look asks what the change of a key wrote.
func (h *historian) look(k int, c change) {
	from := h.now()
	status, _, body, err := h.send("GET", c.look, "", "")
	var list api.List[api.Token]
	if err != nil || status != http.StatusOK || json.Unmarshal([]byte(body), &list) != nil {
		return // nothing was learnt
	}
	got := told{known: true}
	for _, token := range list.Data {
		if writer, err := strconv.Atoi(token.Metadata["writer"]); err == nil {
			got.written++
			got.writer = writer
		}
	}
	h.note(question{key: k, look: true}, from, got)
}

func (h *historian) now() int64 { return int64(time.Since(h.begun)) }

// note writes a question down that ends now, or never when nobody was told.
func (h *historian) note(q question, from int64, got told) {
	end := h.now()
	if !got.known && !got.refused {
		end = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.history = append(h.history, porcupine.Operation{ClientId: q.caller, Input: q, Call: from, Output: got, Return: end})
}

func (h *historian) send(method, path, idempotencyKey, body string) (status int, header http.Header, answer string, err error) {
	r, err := http.NewRequest(method, h.f.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), h.key)
	if idempotencyKey != "" {
		r.Header.Set(api.Header(api.DefaultPrefix, api.IdempotencyKey), idempotencyKey)
	}
	r.Header.Set("Content-Type", api.MediaJSON)
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", api.MediaMergePatch)
	}
	response, err := h.client.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, string(b), err
}
