package idempotency_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const (
	inFlight = "a request with this idempotency key is being processed"
	gone     = "the result is no longer available"
)

// conflict fails unless err is a 409 with these words.
func conflict(t *testing.T, call string, err error, words string) {
	t.Helper()
	f := fault.Of(err)
	if !errors.Is(err, fault.Conflict) || f.Detail() != words || words == inFlight && f.Wait() != time.Second {
		t.Errorf("%s = %v, to be retried after %s; want a conflict: %s", call, err, f.Wait(), words)
	}
}

func TestAnAnswerIsGivenOutAgainAsItWas(t *testing.T) {
	storetest.Long(t)
	onBoth(t, func(t *testing.T, w *world) {
		for i, answer := range []response.Response{
			{Status: 200},
			{Status: 204, Location: "/x"},
			// An answer that code gave by itself.
			{Status: 299, Headers: map[string]string{"Content-Type": "text/plain", "X-A": "<b>"}, Body: []byte("no JSON \x00\xff")},
			// What HTML escapes, and numbers that a float would not hold.
			{Status: 201, Location: "/tokens/a%2Fb", Body: []byte("{\"a\":\"<b> & \u2028 \u00e9\",\"n\":12345678901234567890.10,\"a\":1}")},
		} {
			key := fmt.Sprint("key ", i)
			w.mustKeep(w.node, key, answer)
			for name, n := range map[string]*node{"this node": w.node, "another": w.newNode()} {
				if got, err := w.find(n, key); err != nil || !reflect.DeepEqual(got, &answer) {
					t.Errorf("on %s: %+v, %v; want %+v", name, got, err, answer)
				}
			}
		}
	})
}

func TestAKeyIsOneCallersForOneMethodAndPath(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.mustKeep(w.node, "key", response.Response{Status: 200})
		session := func(application, id string) access.Caller {
			return accesstest.Session(t, w.tenant, application, id, nil, access.TokenCreate)
		}
		for name, r := range map[string]struct {
			c                 access.Caller
			method, path, key string
			found             bool
		}{
			"the same":                {w.caller(app), "POST", "/tokens", "key", true},
			"another key":             {w.caller(app), "POST", "/tokens", "key2", false},
			"another method":          {w.caller(app), "PUT", "/tokens", "key", false},
			"another path":            {w.caller(app), "POST", "/tokens/", "key", false},
			"another application":     {w.caller("app2"), "POST", "/tokens", "key", false},
			"a session of the same":   {session(app, "s"), "POST", "/tokens", "key", false},
			"parts that run together": {w.caller(app), "POST/", "tokens", "key", false},
			"parts that run over":     {w.caller(app), "POST", "/tokensk", "ey", false},
		} {
			request := creating(r.key)
			request.Method, request.Path = r.method, r.path
			answer, a, err := w.Begin(t.Context(), r.c, request)
			if err != nil || (answer != nil) != r.found || (a != nil) == r.found {
				t.Errorf("%s: Begin = %v, %v, %v; want an answer: %t", name, answer, a, err, r.found)
			}
			if a != nil {
				w.release(a)
			}
		}
		// Two sessions of one application are two callers.
		_, first, err := w.Begin(t.Context(), session(app, "s1"), creating("key"))
		_, second, err2 := w.Begin(t.Context(), session(app, "s2"), creating("key"))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		w.release(first)
		w.release(second)
	})
}

func TestNobodysTenantHasNoKeys(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		for _, tenant := range []string{uuid.NewString(), "no tenant", ""} {
			_, a, err := w.Begin(t.Context(), access.NewSystem(tenant), creating("key"))
			if a != nil || !errors.Is(err, fault.NotFound) {
				t.Errorf("Begin in tenant %q = %v, want not found", tenant, err)
			}
		}
	})
}

func TestOneNodeProcessesAKeyOnceAtATime(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a := w.begin(w.node, "key")
		_, err := w.find(w.node, "key")
		conflict(t, "Begin while it is processed", err, inFlight)
		w.release(w.begin(w.node, "another"))
		w.release(a)
		if n := len(w.parcels()); n != 0 {
			t.Errorf("a failed request left %d rows", n)
		}
		w.mustKeep(w.node, "key", response.Response{Status: 200})

		// An answer is there before its request has left: whoever comes then gets it.
		a = w.begin(w.node, "early")
		if err := w.keep(t.Context(), a, w.tenant, response.Response{Status: 201}, nil); err != nil {
			t.Fatal(err)
		}
		if got, err := w.find(w.node, "early"); err != nil || got == nil || got.Status != 201 {
			t.Errorf("Begin behind the effect = %v, %v; want the answer", got, err)
		}
		w.release(a)
	})
}

func TestOfTwoNodesOneHasTheEffect(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		other := w.newNode()
		// Both have begun when the first commits.
		a, b := w.begin(w.node, "key"), w.begin(other, "key")
		if err := w.keep(t.Context(), a, w.tenant, response.Response{Status: 201}, nil); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			err := other.keep(t.Context(), b, w.tenant, response.Response{Status: 202}, nil)
			if !errors.Is(err, idempotency.ErrAnswered) && !errors.Is(err, store.ErrExists) {
				t.Errorf("Keep of the second = %v, want that another was first", err)
			}
		}
		if got, err := b.Find(t.Context()); err != nil || got == nil || got.Status != 201 {
			t.Errorf("Find of the second = %v, %v; want the answer of the first", got, err)
		}
		w.release(a)
		w.release(b)
		if f := fault.Of(idempotency.ErrAnswered); f.Kind() != fault.Conflict || f.Wait() == 0 {
			t.Error("a caller that finds no answer is not told to try again")
		}
	})
}

func TestManyCallersOnTwoNodesMakeOneToken(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		nodes := []*node{w.node, w.newNode()}
		const keys, callers = 10, 8
		type result struct {
			body string
			err  error
		}
		results := make(chan result, callers)
		for k := range keys {
			key := fmt.Sprint("key ", k)
			begin := make(chan struct{})
			for i := range callers {
				go func() {
					<-begin
					body, err := nodes[i%2].create(t.Context(), w.caller(app), key, fmt.Sprint(k, "/", i))
					results <- result{body, err}
				}()
			}
			close(begin)
			bodies := map[string]int{}
			for range callers {
				r := <-results
				switch {
				case errors.Is(r.err, fault.Conflict):
				case r.err != nil:
					t.Errorf("key %d: %v", k, r.err)
				default:
					bodies[r.body]++
				}
			}
			if len(bodies) != 1 {
				t.Errorf("key %d: %d different answers, want 1", k, len(bodies))
			}
			for _, n := range nodes {
				if body, err := n.create(t.Context(), w.caller(app), key, "late"); err != nil || bodies[body] == 0 {
					t.Errorf("key %d: a later request gets another answer, %v", k, err)
				}
			}
		}
		if n := w.made(); n != keys {
			t.Errorf("there are %d tokens, want %d", n, keys)
		}
		if n := len(w.parcels()); n != keys {
			t.Errorf("there are %d rows, want %d", n, keys)
		}
	})
}

func TestAMarkHoldsItsKey(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		other := w.newNode()
		a, b := w.begin(w.node, "key"), w.begin(other, "key")
		if err := a.Hold(t.Context()); err != nil {
			t.Fatal(err)
		}
		conflict(t, "Hold of another that had begun", b.Hold(t.Context()), inFlight)
		w.release(b)
		if got := w.parcels(); len(got) != 1 || got[0].Contents != nil || got[0].ExpiresAt != store.At(start.Add(time.Minute)) {
			t.Fatalf("the rows are %+v, want the mark of the first, for a minute", got)
		}
		_, err := w.find(other, "key")
		conflict(t, "Begin on another node", err, inFlight)
		if err := w.keep(t.Context(), a, w.tenant, response.Response{Status: 201}, nil); err != nil {
			t.Fatalf("Keep = %v", err)
		}
		w.release(a)
		if got, err := w.find(other, "key"); err != nil || got == nil || got.Status != 201 {
			t.Errorf("the answer is %v, %v", got, err)
		}
		if got := w.parcels(); len(got) != 1 || got[0].ExpiresAt != store.At(start.Add(24*time.Hour)) {
			t.Errorf("the rows are %+v, want one for a day", got)
		}

		// Without an answer the mark goes with its request.
		a = w.begin(w.node, "fails")
		if err := a.Hold(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.release(a)
		if n := len(w.parcels()); n != 1 {
			t.Errorf("there are %d rows, want the mark removed", n)
		}
		w.release(w.begin(other, "fails"))
	})
}

func TestAMarkOfADeadServerFreesItsKeyAfterAMinute(t *testing.T) {
	for _, next := range []string{"holds", "keeps", "fails", "is swept"} {
		t.Run("the next one "+next, func(t *testing.T) {
			onBoth(t, func(t *testing.T, w *world) {
				other := w.newNode()
				late := w.begin(w.node, "key")
				if err := late.Hold(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.clock.Advance(idempotency.MarkLifetime - time.Second)
				_, err := w.find(other, "key")
				conflict(t, "Begin within the minute", err, inFlight)
				w.clock.Advance(time.Second)
				if next == "is swept" {
					if n, err := store.SweepParcels(t.Context(), w.store, store.At(w.clock.Now())); n != 1 || err != nil {
						t.Fatalf("SweepParcels = %d, %v", n, err)
					}
				} else {
					b := w.begin(other, "key")
					if next != "keeps" {
						if err := b.Hold(t.Context()); err != nil {
							t.Fatalf("Hold = %v", err)
						}
					}
					if next != "fails" {
						if err := other.keep(t.Context(), b, w.tenant, response.Response{Status: 201}, nil); err != nil {
							t.Fatalf("Keep = %v", err)
						}
					}
					w.release(b)
				}
				before := w.parcels()
				if err := w.keep(t.Context(), late, w.tenant, response.Response{Status: 500}, nil); !errors.Is(err, idempotency.ErrAnswered) {
					t.Errorf("Keep of the one that came back = %v, want %v", err, idempotency.ErrAnswered)
				}
				w.release(late)
				if got := w.parcels(); !reflect.DeepEqual(got, before) {
					t.Errorf("the one that came back left %+v, were %+v", got, before)
				}
			})
		})
	}
}

// One that takes over a mark may meet its owner, who was only slow.
func TestAMarkIsTakenOverByOne(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		slow := w.begin(w.node, "key")
		if err := slow.Hold(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(idempotency.MarkLifetime)
		b, c := w.begin(w.newNode(), "key"), w.begin(w.newNode(), "key")
		if err := b.Hold(t.Context()); err != nil {
			t.Fatalf("Hold = %v", err)
		}
		if err := c.Hold(t.Context()); !errors.Is(err, fault.Conflict) {
			t.Errorf("Hold of a third = %v, want a conflict", err)
		}
		if err := w.keep(t.Context(), c, w.tenant, response.Response{Status: 202}, nil); !errors.Is(err, idempotency.ErrAnswered) {
			t.Errorf("Keep of a third = %v, want %v", err, idempotency.ErrAnswered)
		}
		_, err := c.Find(t.Context())
		conflict(t, "Find of a third", err, inFlight)
		for _, a := range []*idempotency.Attempt{slow, b, c} {
			w.release(a)
		}
		if n := len(w.parcels()); n != 0 {
			t.Errorf("%d rows are left", n)
		}

		// The owner keeps its answer before the other does.
		slow = w.begin(w.node, "second")
		if err := slow.Hold(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(idempotency.MarkLifetime)
		b = w.begin(w.newNode(), "second")
		if err := w.keep(t.Context(), slow, w.tenant, response.Response{Status: 201}, nil); err != nil {
			t.Fatalf("Keep of the owner = %v", err)
		}
		if err := w.keep(t.Context(), b, w.tenant, response.Response{Status: 202}, nil); !errors.Is(err, idempotency.ErrAnswered) {
			t.Errorf("Keep of the other = %v, want %v", err, idempotency.ErrAnswered)
		}
		if got, err := b.Find(t.Context()); err != nil || got == nil || got.Status != 201 {
			t.Errorf("Find of the other = %v, %v; want the owner's answer", got, err)
		}
	})
}

func TestAnswersAreGivenOutForADay(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		for i := range 3 {
			w.mustKeep(w.node, fmt.Sprint("key ", i), response.Response{Status: 201})
		}
		w.clock.Advance(idempotency.Lifetime - time.Microsecond)
		if got, err := w.find(w.node, "key 0"); got == nil || err != nil {
			t.Errorf("just before the day is over: %v, %v; want the answer", got, err)
		}
		if n, err := store.SweepParcels(t.Context(), w.store, store.At(w.clock.Now())); n != 0 || err != nil {
			t.Errorf("SweepParcels = %d, %v; want none", n, err)
		}
		w.clock.Advance(time.Microsecond)
		w.mustKeep(w.node, "key 0", response.Response{Status: 202}) // in place of the old one
		// One that was swept between begin and commit.
		a := w.begin(w.node, "key 1")
		if n, err := store.SweepParcels(t.Context(), w.store, store.At(w.clock.Now())); n != 2 || err != nil {
			t.Errorf("SweepParcels = %d, %v; want 2", n, err)
		}
		if err := w.keep(t.Context(), a, w.tenant, response.Response{Status: 203}, nil); err != nil {
			t.Errorf("Keep = %v", err)
		}
		w.release(a)
		w.release(w.begin(w.node, "key 2"))
		for key, status := range map[string]int{"key 0": 202, "key 1": 203} {
			if got, err := w.find(w.node, key); err != nil || got == nil || got.Status != status {
				t.Errorf("%s: %v, %v; want %d", key, got, err, status)
			}
		}
		if n := len(w.parcels()); n != 2 {
			t.Errorf("there are %d rows, want 2", n)
		}
	})
}

func TestAnswersAreSealedAndBoundToTheirKey(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		const planted, key = "Planted-Answer-4Q", "Planted-Key-7Z"
		w.mustKeep(w.node, key, response.Response{Status: 201, Location: "/" + planted, Body: []byte(`"` + planted + `"`)})
		w.mustKeep(w.node, "other", response.Response{Status: 200})
		rows := w.parcels()
		for _, p := range rows {
			text := fmt.Sprintf("%s %s %s %s %q", p.Kind, p.ID, p.Group, p.Owner, p.Contents)
			if strings.Contains(text, planted) || strings.Contains(text, key) || strings.Contains(text, app) {
				t.Errorf("a row holds an answer or a key in clear: %s", text)
			}
		}
		replace := func(p store.Parcel) {
			w.change(func(tx store.Tx) error {
				old, err := tx.Parcel(t.Context(), p.Kind, p.ID)
				p.Version = old.Version + 1
				return errors.Join(err, tx.ReplaceParcel(t.Context(), p))
			})
		}
		for name, change := range map[string]func(a, b store.Parcel) store.Parcel{
			"another's contents": func(a, b store.Parcel) store.Parcel { a.Contents = b.Contents; return a },
			"a byte more":        func(a, _ store.Parcel) store.Parcel { a.Contents = append(slices.Clone(a.Contents), 1); return a },
			"another epoch":      func(a, _ store.Parcel) store.Parcel { a.Epoch = 7; return a },
			"empty contents":     func(a, _ store.Parcel) store.Parcel { a.Contents = []byte{}; return a },
		} {
			replace(change(rows[0], rows[1]))
			replace(change(rows[1], rows[0]))
			for _, k := range []string{key, "other"} {
				if got, err := w.find(w.node, k); got != nil || err == nil || strings.Contains(err.Error(), planted) {
					t.Errorf("%s: Begin = %v, %v; want no answer and no attempt", name, got, err)
				}
			}
			replace(rows[0])
			replace(rows[1])
		}
		// What opens and is no answer: a value sealed for this place by us.
		w.change(func(tx store.Tx) error {
			keys, err := w.ring.For(t.Context(), w.tenant)
			if err != nil {
				return err
			}
			p := rows[0]
			if err := keys.SealParcel(&p, nil, []byte(planted)); err != nil {
				return err
			}
			old, err := tx.Parcel(t.Context(), p.Kind, p.ID)
			p.Version = old.Version + 1
			return errors.Join(err, tx.ReplaceParcel(t.Context(), p))
		})
		broken := 0
		for _, k := range []string{key, "other"} {
			if _, err := w.find(w.node, k); err != nil {
				broken++
				if strings.Contains(err.Error(), planted) {
					t.Errorf("the error repeats what was sealed: %v", err)
				}
			}
		}
		if broken != 1 {
			t.Errorf("%d answers do not open, want 1", broken)
		}
	})
}

func TestAnAnswerGoesWithItsEpochKey(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		epoch, err := w.ring.Epoch(t.Context(), w.tenant)
		if err != nil {
			t.Fatal(err)
		}
		a := w.begin(w.node, "key")
		if err := w.keep(t.Context(), a, w.tenant, response.Response{Status: 201}, epoch); err != nil {
			t.Fatal(err)
		}
		w.release(a)
		if got := w.parcels(); len(got) != 1 || got[0].Epoch != epoch.Epoch() || got[0].ExpiresAt != store.At(start.Add(24*time.Hour)) {
			t.Fatalf("the rows are %+v, want one under the epoch, for a day", got)
		}
		other := w.newNode()
		for _, n := range []*node{w.node, other} {
			if got, err := w.find(n, "key"); err != nil || got == nil || got.Status != 201 {
				t.Errorf("while the key is there: %v, %v", got, err)
			}
		}
		w.clock.Advance(keyring.Retention)
		for _, destroyed := range []bool{false, true} {
			if destroyed {
				if n, err := w.ring.DestroyDue(t.Context(), 0); n != 1 || err != nil {
					t.Fatalf("DestroyDue = %d, %v", n, err)
				}
			}
			for _, n := range []*node{w.node, other} {
				got, err := w.find(n, "key")
				if got != nil {
					t.Errorf("destroyed %t: there is an answer", destroyed)
				}
				conflict(t, "Begin", err, gone)
			}
		}
		// Of a result that comes too late for its key it is kept that there was
		// one: what made it has run, and must not run again.
		a = w.begin(w.node, "late")
		if err := w.keep(t.Context(), a, w.tenant, response.Response{Status: 201, Body: []byte("late")}, epoch); err != nil {
			t.Errorf("Keep = %v", err)
		}
		w.release(a)
		for _, n := range []*node{w.node, other} {
			_, err := w.find(n, "late")
			conflict(t, "Begin", err, gone)
		}
		// A day after it was made, the key is free.
		w.clock.Advance(idempotency.Lifetime - keyring.Retention)
		w.mustKeep(w.node, "key", response.Response{Status: 202})
	})
}

func TestAnswersAreSealedAnewWhenTheKeyRotates(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		epoch, err := w.ring.Epoch(t.Context(), w.tenant)
		if err != nil {
			t.Fatal(err)
		}
		w.mustKeep(w.node, "key", response.Response{Status: 201, Body: []byte(`"x"`)})
		w.mustKeep(w.node, "stale", response.Response{Status: 201})
		short := w.begin(w.node, "short")
		if err := w.keep(t.Context(), short, w.tenant, response.Response{Status: 203}, epoch); err != nil {
			t.Fatal(err)
		}
		w.release(short)
		held := w.begin(w.node, "held")
		if err := held.Hold(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := map[string][]byte{}
		for _, p := range w.parcels() {
			before[p.ID] = p.Contents
		}
		if err := w.ring.RotateTenant(t.Context(), w.tenant, nil); err != nil {
			t.Fatal(err)
		}
		if err := w.ring.RetireTenant(t.Context(), w.tenant); err != nil {
			t.Fatal(err)
		}
		for _, p := range w.parcels() {
			same := string(p.Contents) == string(before[p.ID])
			if resealed := p.Epoch == 0 && p.Contents != nil; same == resealed {
				t.Errorf("a row of epoch %d with %d bytes was sealed anew: %t", p.Epoch, len(p.Contents), !same)
			}
		}
		w.release(held)
		for key, status := range map[string]int{"key": 201, "stale": 201, "short": 203} {
			for _, n := range []*node{w.node, w.newNode()} {
				if got, err := w.find(n, key); err != nil || got == nil || got.Status != status {
					t.Errorf("%s: %v, %v; want %d", key, got, err, status)
				}
			}
		}
		// A rotation that meets a request with a stale answer is no answer.
		w.clock.Advance(idempotency.Lifetime)
		a := w.begin(w.node, "stale")
		if err := w.ring.RotateTenant(t.Context(), w.tenant, nil); err != nil {
			t.Fatal(err)
		}
		err = w.keep(t.Context(), a, w.tenant, response.Response{Status: 204}, nil)
		if err != nil && (!errors.Is(err, fault.Conflict) || fault.Of(err).Wait() == 0) {
			t.Errorf("Keep = %v, want nil or a conflict to be retried", err)
		}
		w.release(a)
	})
}

func TestAStoreThatFailsIsNeitherAnAnswerNorNone(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.mustKeep(w.node, "stale", response.Response{Status: 200})
		w.clock.Advance(idempotency.Lifetime)
		hold := func(a *idempotency.Attempt) error { return a.Hold(t.Context()) }
		keep := func(a *idempotency.Attempt) error {
			return w.keep(t.Context(), a, w.tenant, response.Response{Status: 200}, nil)
		}
		release := func(a *idempotency.Attempt) error { return a.Release(t.Context()) }
		find := func(a *idempotency.Attempt) error { _, err := a.Find(t.Context()); return err }
		nothing := func(*idempotency.Attempt) error { return nil }
		// A second run of a transaction looks whether there is an answer.
		ran := func(a *idempotency.Attempt) error {
			w.store.breaks("InsertParcel")
			defer w.store.breaks("")
			if err := keep(a); !errors.Is(err, errBroken) {
				return errors.Join(errors.New("it did not fail"), err)
			}
			return nil
		}
		for _, test := range []struct {
			name, key, broken string
			before, call      func(*idempotency.Attempt) error
		}{
			{"find", "new", "Parcel", nothing, find},
			{"hold", "new", "InsertParcel", nothing, hold},
			{"hold in place of a stale one", "stale", "Parcel", nothing, hold},
			{"keep in place of a stale one", "stale", "Parcel", nothing, keep},
			{"keep and remove a stale one", "stale", "DeleteParcel", nothing, keep},
			{"keep what was held", "new", "Parcel", hold, keep},
			{"keep the second time", "new", "Parcel", ran, keep},
			{"release what was held", "new", "Parcel", hold, release},
			{"release and remove", "new", "DeleteParcel", hold, release},
		} {
			a := w.begin(w.node, test.key)
			if err := test.before(a); err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			w.store.breaks(test.broken)
			if err := test.call(a); !errors.Is(err, errBroken) || errors.Is(err, idempotency.ErrAnswered) {
				t.Errorf("%s = %v, want %v", test.name, err, errBroken)
			}
			w.store.breaks("")
			w.release(a)
			if n := len(w.parcels()); n != 1 {
				t.Errorf("%s: there are %d rows, want 1", test.name, n)
			}
		}

		for _, broken := range []string{"Parcel", "Keysets"} {
			w.store.breaks(broken)
			w.ring.Forget(w.tenant)
			if _, err := w.find(w.node, "new"); !errors.Is(err, errBroken) {
				t.Errorf("Begin without %s = %v, want %v", broken, err, errBroken)
			}
			w.store.breaks("")
			w.release(w.begin(w.node, "new")) // it holds nothing
		}
	})
}

func TestWhatIsOverIsSweptOnceWhoeverSweeps(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		const many = 250 // more than one transaction removes
		w.mustKeep(w.node, "key", response.Response{Status: 200})
		w.change(func(tx store.Tx) (err error) {
			for i := range many {
				err = errors.Join(err, tx.InsertParcel(t.Context(), store.Parcel{
					Kind: store.ParcelAnswer, ID: fmt.Sprint(i), CreatedAt: store.At(start), ExpiresAt: store.At(start.Add(time.Minute)), Version: 1,
				}))
			}
			return err
		})
		w.clock.Advance(time.Minute)
		removed := make(chan int)
		for _, n := range []*node{w.node, w.newNode()} {
			go func() {
				got, err := store.SweepParcels(t.Context(), n.store, store.At(w.clock.Now()))
				if err != nil {
					t.Errorf("SweepParcels = %v", err)
				}
				removed <- got
			}()
		}
		if got := <-removed + <-removed; got != many {
			t.Errorf("%d rows were removed, want %d", got, many)
		}
		if got, err := w.find(w.node, "key"); err != nil || got == nil {
			t.Errorf("the answer that is not over: %v, %v", got, err)
		}
	})
}
