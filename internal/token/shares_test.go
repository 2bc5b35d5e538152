package token_test

import (
	"crypto/rand"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/processor"
	"github.com/tokenkeep/tokenkeep/internal/token"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// held is a source of randomness for the ids of tokens: whoever draws from it
// stops there, in the middle of an evaluation, until it is opened.
type held struct {
	drawing atomic.Int64 // callers that are there
	open    chan struct{}
}

func (h *held) Read(p []byte) (int, error) {
	h.drawing.Add(1)
	<-h.open
	return rand.Read(p)
}

func TestExpressionsOfOneTenantLeaveProcessorsToOthers(t *testing.T) {
	const attacks, most = 12, 2
	w := newWorld(t)
	source := &held{open: make(chan struct{})}
	var reached atomic.Int64
	turns := processor.New(most, func() { reached.Add(1) })
	w.tokens = token.New(w.store, w.ring, token.Options{Now: w.clock.Now, Random: source, Processors: turns})
	attacker := w.revealing()
	// Many steps, then a draw.
	request, err := token.ParseRequest(parse(t, `{"type":"token","data":"`+strings.Repeat("x", 20_000)+`","id":"`+
		strings.Repeat("{{ data | size | slice: 0, 0 }}", 20)+`{{ data | slice: 0, 20 | alias_preserve_length }}"}`))
	if err != nil {
		t.Fatal(err)
	}
	var attacking sync.WaitGroup
	for range attacks {
		attacking.Go(func() {
			if _, err := w.tokens.Create(t.Context(), attacker, request); err != nil {
				t.Errorf("Create = %s", says(err))
			}
		})
	}
	waittest.Until(t, "all attacks to evaluate or to wait", func() bool { return source.drawing.Load()+int64(turns.Waiting()) == attacks })
	if n, running := source.drawing.Load(), turns.Running(); n != most || running != most {
		t.Errorf("%d evaluations are under way with %d turns, want %d", n, running, most)
	}
	if reached.Load() == 0 {
		t.Error("the limit was never counted")
	}
	// Another tenant creates and reads ordinary tokens meanwhile.
	other := w.stranger()
	made := w.mustCreate(other, `{"type":"card","data":{"number":"`+visa+`"},"mask":{"n":"{{ data.number | last4 }}"},"search_indexes":["{{ data.number }}"]}`)
	if _, err := w.tokens.Get(t.Context(), other, made.ID); err != nil {
		t.Errorf("Get by the other tenant = %s", says(err))
	}
	close(source.open)
	attacking.Wait()
	if running, waiting := turns.Running(), turns.Waiting(); running != 0 || waiting != 0 {
		t.Errorf("at the end %d turns are taken and %d requests wait, want none", running, waiting)
	}
}
