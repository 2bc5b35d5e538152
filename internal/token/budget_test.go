package token_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// growing is a fingerprint expression of 63 bytes that used to make hundreds of
// megabytes.
const growing = `{{ data | pad_left: 999999 | replace: ' ', 'xxxxxxxx' | split: '' }}`

func TestShortRequestsCannotTakeTheMemoryOfOthers(t *testing.T) {
	w := newWorld(t)
	var reached atomic.Int64
	w.tokens = token.New(w.store, w.ring, token.Options{Now: w.clock.Now, Expressions: expression.Limits{Reached: func() { reached.Add(1) }}})
	public := accesstest.Application(t, w.tenant, appID, access.Public, []access.Rule{accesstest.Rule("/", access.Mask, access.TokenCreate)})
	other := w.stranger()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const attacks = 12
	var group sync.WaitGroup
	for range attacks {
		group.Go(func() {
			_, err := w.create(public, `{"type":"token","data":"1","fingerprint_expression":"`+growing+`"}`)
			if fault.Of(err).Kind() != fault.Invalid || fault.Of(err).Fields()["fingerprint_expression"] == nil {
				t.Errorf("Create = %s, want a 400 about fingerprint_expression", says(err))
			}
		})
		group.Go(func() {
			if _, err := w.create(other, `{"type":"card","data":{"number":"`+visa+`"}}`); err != nil {
				t.Errorf("Create of another tenant = %s", says(err))
			}
		})
	}
	group.Wait()
	runtime.ReadMemStats(&after)
	if taken := (after.TotalAlloc - before.TotalAlloc) >> 20; taken > 16*attacks {
		t.Errorf("%d MiB were allocated for %d attacks, want at most %d", taken, attacks, 16*attacks)
	}
	if n := reached.Load(); n != attacks {
		t.Errorf("the limit was reached %d times, want %d", n, attacks)
	}
}

func TestAllExpressionsOfARequestShareOneBudget(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	data := strings.Repeat("a", 16_000)
	costly := "{{ data" + strings.Repeat("|alias_preserve_length", 10) + "|slice:0,9 }}"
	index := strings.Repeat("{{ data | size }}", 75) // takes about an eighth of the steps of a request
	indexes := func(n int) string { return `["` + strings.Repeat(index+`","`, n-1) + index + `"]` }
	for name, do := range map[string]struct {
		call func() error
		path string
	}{
		"the indexes of a create": {func() error {
			_, err := w.create(c, `{"type":"token","data":"`+data+`","search_indexes":`+indexes(10)+`}`)
			return err
		}, "search_indexes.8"},
		"the ids of a tokenization": {func() error {
			_, err := w.tokenize(c, `[`+strings.Repeat(`{"type":"token","data":"`+data+`","id":"`+costly+`"},`, 20)+`1]`)
			return err
		}, "0.id"},
		"a mask": {func() error {
			_, err := w.create(c, `{"type":"token","data":"`+data+`","mask":"`+index+`"}`)
			return err
		}, "mask"},
	} {
		if err := do.call(); fault.Of(err).Kind() != fault.Invalid || fault.Of(err).Fields()[do.path] == nil || !strings.HasPrefix(fault.Of(err).Code(), "expression_") {
			t.Errorf("%s = %s (%s), want a used up budget at %s", name, says(err), fault.Of(err).Code(), do.path)
		}
	}
	if _, err := w.create(c, `{"type":"token","data":"`+data+`","search_indexes":`+indexes(2)+`}`); err != nil {
		t.Errorf("with two of the indexes: %s", says(err))
	}
	if n := w.total(c); n != 1 {
		t.Errorf("%d tokens are stored, want one", n)
	}
}

// leaving is a source of chance that ends a context when it is first used.
type leaving struct {
	leave context.CancelFunc
	reads int
}

func (l *leaving) Read(p []byte) (int, error) {
	l.leave()
	l.reads += len(p)
	return rand.Read(p)
}

func TestATokenizationStopsWhenTheCallerLeaves(t *testing.T) {
	w := newWorld(t)
	ctx, leave := context.WithCancel(t.Context())
	l := &leaving{leave: leave}
	w.tokens = token.New(w.store, w.ring, token.Options{Now: w.clock.Now, Random: l})
	body := `[` + strings.Repeat(`{"type":"token","data":"abcdefghij","id":"{{ data | alias_preserve_length }}"},`, 999) + `1]`
	_, err := w.tokens.Tokenize(ctx, w.revealing(), parse(t, body))
	if !errors.Is(err, context.Canceled) || l.reads > 100 {
		t.Errorf("Tokenize = %v after %d characters of aliases, want the end of the context after one alias", err, l.reads)
	}

	// The same while masks and indexes are evaluated, before any id is made.
	seen := &watchful{Context: t.Context(), leaves: 50}
	body = `[` + strings.Repeat(`{"type":"token","data":"a","mask":"{{ data | upcase }}","search_indexes":["{{ data }}"]},`, 999) + `1]`
	_, err = w.tokens.Tokenize(seen, w.revealing(), parse(t, body))
	if n := seen.evaluations.Load(); !errors.Is(err, context.Canceled) || n > 60 {
		t.Errorf("Tokenize = %v after %d evaluations, want the end of the context soon after 50", err, n)
	}
	if n := w.total(w.revealing()); n != 0 {
		t.Errorf("%d tokens are stored, want none", n)
	}
}

// watchful is a context that sees who asks it whether it has ended. Every
// evaluation does.
type watchful struct {
	context.Context
	leaves      int64 // the evaluation at which the caller leaves; 0: never
	evaluations atomic.Int64
	inside      atomic.Int64 // evaluations inside a transaction
}

func (w *watchful) Err() error {
	stack := make([]uintptr, 64)
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack)])
	evaluating, transacting := false, false
	for {
		f, more := frames.Next()
		evaluating = evaluating || strings.Contains(f.Function, "/internal/expression.")
		transacting = transacting || strings.Contains(f.Function, ".(*transactions).")
		if !more {
			break
		}
	}
	if evaluating {
		n := w.evaluations.Add(1)
		if transacting {
			w.inside.Add(1)
		}
		if w.leaves > 0 && n >= w.leaves {
			return context.Canceled
		}
	}
	return w.Context.Err()
}

// transactions is a store whose transactions can be seen on the stack.
type transactions struct {
	store.Store
	before func() // runs before the next update
	views  atomic.Int64
}

func (s *transactions) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Store.Update(ctx, tenant, func(tx store.Tx) error { return s.run(tx, fn) })
}

func (s *transactions) View(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	s.views.Add(1)
	return s.Store.View(ctx, tenant, func(tx store.Tx) error { return s.run(tx, fn) })
}

func (s *transactions) Read(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return s.Store.Read(ctx, tenant, func(tx store.Tx) error { return s.run(tx, fn) })
}

//go:noinline
func (s *transactions) run(tx store.Tx, fn func(store.Tx) error) error {
	err := fn(tx)
	runtime.KeepAlive(s) // so that this is no tail call
	return err
}

func TestNothingIsEvaluatedInsideATransaction(t *testing.T) {
	const duplicate = `{"type":"card","data":{"number":"` + visa + `"},"mask":{"n":"{{ data.number | last4 }}"},"deduplicate_token":true}`
	w := newWorld(t)
	s := &transactions{Store: w.store}
	w.tokens = token.New(s, w.ring, token.Options{Now: w.clock.Now})
	reveals, masks := w.revealing(), w.masking()
	w.choose(map[string]string{"fingerprint_tokens": "true"})
	first := w.mustCreate(reveals, `{"type":"token","id":"tok","data":"abc","mask":"{{ data | upcase }}"}`)
	card := w.mustCreate(reveals, duplicate)
	create := func(ctx context.Context, request string) (token.Token, error) {
		r, err := token.ParseRequest(parse(t, request))
		if err != nil {
			t.Fatal(err)
		}
		return w.tokens.Create(ctx, reveals, r)
	}
	for _, c := range []struct {
		name string
		call func(context.Context) error
	}{
		{"a create", func(ctx context.Context) error {
			_, err := create(ctx, `{"type":"token","data":"x","mask":"{{ data }}","id":"{{ data }}-id","search_indexes":["{{ data }}"]}`)
			return err
		}},
		{"a create that repeats a token", func(ctx context.Context) error {
			made, err := create(ctx, duplicate)
			if err == nil && made.ID != card.ID {
				t.Errorf("Create made %s, want the duplicate", made.ID)
			}
			return err
		}},
		{"a create that repeats a token of the same moment", func(ctx context.Context) error {
			request := strings.Replace(duplicate, visa, "5555555555554444", 1)
			var other token.Token
			s.before = func() { other = w.mustCreate(reveals, request) }
			made, err := create(ctx, request)
			if err == nil && made.ID != other.ID {
				t.Errorf("Create made %s, want %s", made.ID, other.ID)
			}
			return err
		}},
		{"a tokenization of two that are the same", func(ctx context.Context) error {
			request := strings.Replace(duplicate, visa, "378282246310005", 1)
			out, err := w.tokens.Tokenize(ctx, reveals, parse(t, `[`+request+`,`+request+`]`))
			if err == nil && text(at(out.Value, 0, "id")) != text(at(out.Value, 1, "id")) {
				t.Errorf("Tokenize made %s, want one token twice", text(out.Value))
			}
			return err
		}},
		{"an update", func(ctx context.Context) error {
			_, err := w.tokens.Update(ctx, reveals, first.ID, parse(t, `{"data":"def"}`))
			return err
		}},
		{"an update that conflicts with another node, often", func(ctx context.Context) error {
			conflicts := 0
			var again func()
			again = func() {
				other := token.New(w.store, w.ring, token.Options{Now: w.clock.Now})
				if _, err := other.Update(t.Context(), reveals, first.ID, parse(t, `{"metadata":{"a":"b"}}`)); err != nil {
					t.Errorf("Update on another node = %s", says(err))
				}
				if conflicts++; conflicts < 8 {
					s.before = again
				}
			}
			s.before = again
			_, err := w.tokens.Update(ctx, reveals, first.ID, parse(t, `{"data":"ghi"}`))
			if conflicts != 8 {
				t.Errorf("there were %d conflicts, want 8", conflicts)
			}
			return err
		}},
		{"a read", func(ctx context.Context) error { _, err := w.tokens.Get(ctx, masks, first.ID); return err }},
		{"a list", func(ctx context.Context) error {
			_, _, err := w.tokens.List(ctx, masks, token.Filter{}, store.Page{Limit: 10})
			return err
		}},
		{"a search", func(ctx context.Context) error {
			_, _, err := w.tokens.Search(ctx, masks, "id:tok", store.Page{Limit: 10})
			return err
		}},
		{"a detokenization", func(ctx context.Context) error {
			_, err := w.tokens.Detokenize(ctx, masks, parse(t, `"{{ tok | downcase }}"`))
			return err
		}},
	} {
		ctx := &watchful{Context: t.Context()}
		if err := c.call(ctx); err != nil {
			t.Errorf("%s = %s", c.name, says(err))
		}
		if ctx.evaluations.Load() == 0 || ctx.inside.Load() > 0 {
			t.Errorf("%s evaluated %d times, %d of them inside a transaction; want some, and none inside", c.name, ctx.evaluations.Load(), ctx.inside.Load())
		}
	}
}

func TestUpdatesOfOneTokenTakeTurns(t *testing.T) {
	w := newWorld(t)
	s := &transactions{Store: w.store}
	w.tokens = token.New(s, w.ring, token.Options{Now: w.clock.Now})
	c := w.revealing()
	w.mustCreate(c, `{"type":"token","id":"tok","data":{}}`)
	s.views.Store(0)
	const updates = 20
	var group sync.WaitGroup
	for i := range updates {
		group.Go(func() { w.mustPatchFrom(fmt.Sprintf(`{"data":{"a%d":1}}`, i), c) })
	}
	group.Wait()
	if got := at(w.mustGet(c, "tok").Data).Len(); got != updates {
		t.Errorf("the token has %d fields, want %d", got, updates)
	}
	// One for the settings, and one for the token: none was computed twice.
	if n := s.views.Load(); n != 2*updates {
		t.Errorf("%d views for %d updates, want %d", n, updates, 2*updates)
	}
}

// mustPatchFrom patches tok in a goroutine of its own.
func (w *world) mustPatchFrom(patch string, c access.Caller) {
	if _, err := w.tokens.Update(w.t.Context(), c, "tok", parse(w.t, patch)); err != nil {
		w.t.Errorf("Update(%s) = %s", patch, says(err))
	}
}

// waiting is a context that ends when a turn is waited for with it.
type waiting struct {
	context.Context
	leave  context.CancelFunc
	waited bool
}

func (w *waiting) Done() <-chan struct{} {
	stack := make([]uintptr, 8)
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack)])
	if f, _ := frames.Next(); strings.HasSuffix(f.Function, ".(*turns).take") {
		w.waited = true
		w.leave()
	}
	return w.Context.Done()
}

func TestAnUpdateWhoseCallerLeavesGivesUpItsTurn(t *testing.T) {
	w := newWorld(t)
	s := &transactions{Store: w.store}
	w.tokens = token.New(s, w.ring, token.Options{Now: w.clock.Now})
	c := w.revealing()
	w.mustCreate(c, `{"type":"token","id":"tok","data":{}}`)
	w.mustCreate(c, `{"type":"token","id":"other","data":{}}`)
	s.before = func() { // the first update has its turn
		ctx, leave := context.WithCancel(t.Context())
		waits := &waiting{Context: ctx, leave: leave}
		if _, err := w.tokens.Update(waits, c, "tok", parse(t, `{"data":{"b":1}}`)); !errors.Is(err, context.Canceled) {
			t.Errorf("Update = %s, want the end of the context", says(err))
		}
		if !waits.waited {
			t.Error("the second update did not wait for its turn")
		}
		w.mustPatch(c, "other", `{"data":{"b":1}}`)
	}
	w.mustPatch(c, "tok", `{"data":{"a":1}}`)
	w.mustPatch(c, "tok", `{"data":{"c":1}}`)
	if got := text(w.mustGet(c, "tok").Data); got != `{"a":1,"c":1}` {
		t.Errorf("data = %s, want a and c", got)
	}
}

func TestLargeHonestRequestsAreNotRefused(t *testing.T) {
	w := newWorld(t)
	c, masks := w.revealing(), w.masking()
	w.choose(map[string]string{"fingerprint_tokens": "true", "deduplicate_tokens": "true"})
	numbers := []string{visa, "5555555555554444", "378282246310005", "4000056655665556"}
	for name, more := range map[string]string{
		"as they are": "",
		"with masks, indexes and ids": `,"mask":{"number":"{{ data.number | card_mask: true, true }}","expires":"{{ data | card_exp: 'MM/YY' }}","bin":"{{ data.number | card_bin }}"},` +
			`"search_indexes":["{{ data.number | last4 }}","{{ data.number | slice: 0, 6 }}"],"id":"{{ data.number | alias_card: false, true }}","metadata":{"order":"%d"},"fingerprint_expression":"{{ data.number }}{{ metadata.order }}"`,
	} {
		items := make([]string, 1000)
		for i := range items {
			if strings.Contains(more, "%d") {
				items[i] = fmt.Sprintf(`{"type":"card","data":{"number":"`+numbers[i%4]+`","expiration_month":12,"expiration_year":2040,"cvc":"123"}`+more+`}`, i)
			} else {
				items[i] = `{"type":"card","data":{"number":"` + numbers[i%4] + `","expiration_month":12,"expiration_year":2040}` + more + `}`
			}
		}
		if _, err := w.tokenize(c, `[`+strings.Join(items, ",")+`]`); err != nil {
			t.Errorf("Tokenize of 1,000 cards %s = %s", name, says(err))
		}
	}

	plain, filtered := make([]string, 100), make([]string, 100)
	for i := range plain {
		plain[i] = fmt.Sprintf(`"%d%s"`, i, strings.Repeat("é", 25_000))
	}
	ids := w.mustTokenize(c, `[`+strings.Join(plain, ",")+`]`)
	for i, id := range ids.Items() {
		plain[i], filtered[i] = `"{{ `+id.Reveal()+` }}"`, `"{{ `+id.Reveal()+` | upcase | append: '!' }}"`
	}
	for name, items := range map[string][]string{"plain": plain, "with filters": filtered} {
		for _, by := range []access.Caller{c, masks} {
			if _, err := w.tokens.Detokenize(t.Context(), by, parse(t, `[`+strings.Join(items, ",")+`]`)); err != nil {
				t.Errorf("Detokenize of 5 MB in 100 tokens, %s = %s", name, says(err))
			}
		}
	}
	document := `{"text":"` + strings.Repeat("a word, ", 500_000) + `"}`
	w.mustCreate(c, `{"type":"token","id":"document","data":`+document+`,"mask":"{{ data.text | slice: 0, 10 }}","search_indexes":["{{ data.text | size }}"],"fingerprint_expression":"{{ data | stringify }}"}`)
	if got := text(w.mustGet(masks, "document").Data); got != `"a word, a "` {
		t.Errorf("the mask of a large document = %s", got)
	}
	w.mustPatch(c, "document", `{"fingerprint_expression":"{{ data.text | downcase }}"}`)
}

func TestWhatCouldBeStoredCanBeListed(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	mask := strings.Repeat("{{ data | size }}", 50) + "!"
	for range 100 {
		w.mustCreate(c, `{"type":"token","data":"`+strings.Repeat("x", 10_000)+`","mask":"`+mask+`"}`)
	}
	list, _, err := w.tokens.List(t.Context(), w.masking(), token.Filter{}, store.Page{Limit: 100})
	if err != nil || len(list) != 100 {
		t.Fatalf("List = %d, %s", len(list), says(err))
	}
	for _, made := range list {
		if !strings.HasSuffix(made.Data.Reveal(), "!") {
			t.Fatal("a mask that could be stored is not shown in a list of many")
		}
	}
}
