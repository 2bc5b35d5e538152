package token_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

const oldFingerprint = "5HpHagT65TZzG1PH3CSu63k8DbpvD8s5ip4nEB3kEsre"

// aged makes of a token what an older release would have written.
func (w *world) aged(id string) {
	w.t.Helper()
	keys, err := w.ring.For(w.t.Context(), w.tenant)
	if err != nil {
		w.t.Fatal(err)
	}
	w.change(w.tenant, func(ctx context.Context, tx store.Tx) error {
		row, err := tx.Token(ctx, id)
		if err != nil {
			return err
		}
		if row.Details, err = keys.Seal(id, keyring.FieldTokenDetails, []byte(`{"metadata":{"k":"v"},"fingerprint":"`+oldFingerprint+`"}`)); err != nil {
			return err
		}
		row.Terms = [][]byte{keys.IndexTerm("fingerprint", oldFingerprint), keys.IndexTerm("metadata:k", "V")}
		row.Version++
		row.Derived = false
		return tx.ReplaceToken(ctx, row)
	})
}

func (w *world) application(id string, class access.ApplicationType) {
	w.change(w.tenant, func(ctx context.Context, tx store.Tx) error {
		return tx.InsertApplication(ctx, store.Application{ID: id, Name: "a", Type: string(class), CreatedAt: store.At(start), Version: 1})
	})
}

func TestFingerprintsOfAnOlderReleaseAreRecomputed(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	w.application(appID, access.Private)
	card := `{"type":"card","data":{"number":"` + visa + `"},"deduplicate_token":true`
	want := w.mustCreate(c, `{"type":"card","id":"card","data":{"number":"`+visa+`"},"metadata":{"k":"v"}}`).Fingerprint
	before := w.mustGet(c, "card")
	w.aged("card")
	if got := w.mustGet(c, "card").Fingerprint; got != oldFingerprint {
		t.Fatalf("before it is recomputed the fingerprint is %s, want the old one", got)
	}
	if found, _, err := w.tokens.Search(t.Context(), c, "fingerprint:"+oldFingerprint, store.Page{Limit: 2}); err != nil || len(found) != 1 {
		t.Errorf("a search for the old fingerprint finds %d, %v", len(found), err)
	}
	w.clock.Advance(time.Second)
	duplicate := w.mustCreate(c, card+`}`)
	if duplicate.ID == "card" {
		t.Error("an old fingerprint deduplicates")
	}
	if err := w.tokens.Delete(t.Context(), c, duplicate.ID); err != nil {
		t.Fatal(err)
	}
	if n, err := w.tokens.RecomputeFingerprints(t.Context()); n != 1 || err != nil {
		t.Fatalf("RecomputeFingerprints = %d, %v", n, err)
	}
	after := w.mustGet(c, "card")
	if after.Fingerprint != want || text(after.Object()) != text(before.Object()) {
		t.Errorf("recomputed: %s, want %s", text(after.Object()), text(before.Object()))
	}
	for query, finds := range map[string]int{"fingerprint:" + oldFingerprint: 0, "fingerprint:" + want: 1, "metadata.k:v": 1} {
		if found, _, err := w.tokens.Search(t.Context(), c, query, store.Page{Limit: 2}); err != nil || len(found) != finds {
			t.Errorf("%s finds %d, %v, want %d", query, len(found), err, finds)
		}
	}
	if w.mustCreate(c, card+`}`).ID != "card" {
		t.Error("a recomputed fingerprint does not deduplicate")
	}
	if n := w.count(w.tenant, "update tenant "+w.tenant+" Tenant fingerprints of tokens recomputed system"); n != 1 {
		t.Errorf("%d entries of the work, want 1", n)
	}
	if n, err := w.tokens.RecomputeFingerprints(t.Context()); n != 0 || err != nil {
		t.Errorf("a second run = %d, %v, want nothing to do", n, err)
	}
}

// TestRecomputingFoldsMetadataAsThisReleaseDoes: an older release folded letter
// by letter, so a ß was only a ß.
func TestRecomputingFoldsMetadataAsThisReleaseDoes(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	w.mustCreate(c, `{"type":"token","id":"old","data":"x","metadata":{"street":"Hauptstraße"}}`)
	keys, err := w.ring.For(t.Context(), w.tenant)
	if err != nil {
		t.Fatal(err)
	}
	w.change(w.tenant, func(ctx context.Context, tx store.Tx) error {
		row, err := tx.Token(ctx, "old")
		if err != nil {
			return err
		}
		row.Terms = [][]byte{keys.IndexTerm("metadata:street", "HAUPTSTRAßE")}
		row.Version++
		row.Derived = false
		return tx.ReplaceToken(ctx, row)
	})
	if n, err := w.tokens.RecomputeFingerprints(t.Context()); n != 1 || err != nil {
		t.Fatalf("RecomputeFingerprints = %d, %v", n, err)
	}
	for _, value := range []string{"Hauptstraße", "HAUPTSTRASSE", "hauptstrasse"} {
		found, _, err := w.tokens.Search(t.Context(), c, "metadata.street:"+value, store.Page{Limit: 2})
		if err != nil || len(found) != 1 {
			t.Errorf("%s finds %d, %v, want 1", value, len(found), err)
		}
	}
}

func TestWhatAPublicApplicationWroteInAnOlderReleaseIsNoDuplicate(t *testing.T) {
	for name, make := range map[string]func(*world){
		"created by a public application":         func(w *world) { w.application(appID, access.Public) },
		"created by an application that is gone":  func(*world) {},
		"created by a private application (none)": nil,
	} {
		w := newWorld(t)
		if make == nil {
			w.application(appID, access.Private)
		} else {
			make(w)
		}
		w.mustCreate(w.revealing(), `{"type":"card","id":"card","data":{"number":"`+visa+`"}}`)
		w.aged("card")
		w.clock.Advance(time.Second)
		if n, err := w.tokens.RecomputeFingerprints(t.Context()); n != 1 || err != nil {
			t.Fatalf("RecomputeFingerprints = %d, %v", n, err)
		}
		made := w.mustCreate(w.revealing(), `{"type":"card","data":{"number":"`+visa+`"},"deduplicate_token":true}`)
		if (made.ID == "card") != (make == nil) {
			t.Errorf("%s: it is a duplicate: %t", name, made.ID == "card")
		}
	}
}

// TestRecomputingGoesOnWhereItWasStopped: the context ends in the middle, a
// row does not open, and another tenant is there.
func TestRecomputingGoesOnWhereItWasStopped(t *testing.T) {
	w := newWorld(t)
	const tokens = 60
	for i := range tokens {
		id := "card-" + strconv.Itoa(i)
		w.mustCreate(w.revealing(), `{"type":"card","id":"`+id+`","data":{"number":"`+visa+`"}}`)
		w.aged(id)
	}
	w.change(w.tenant, func(ctx context.Context, tx store.Tx) error {
		row, err := tx.Token(ctx, "card-7")
		if err != nil {
			return err
		}
		row.Details[len(row.Details)-1] ^= 1
		row.Version++
		return tx.ReplaceToken(ctx, row)
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := w.tokens.RecomputeFingerprints(ctx); err == nil {
		t.Errorf("RecomputeFingerprints without time = %d, nil", n)
	}
	total := 0
	for range tokens {
		n, err := w.tokens.RecomputeFingerprints(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if total += n; n == 0 {
			break
		}
	}
	if total != tokens {
		t.Errorf("%d tokens were looked at, want %d", total, tokens)
	}
	for i := range tokens {
		id := "card-" + strconv.Itoa(i)
		if got, err := w.get(w.revealing(), id); id == "card-7" && err == nil || id != "card-7" && got.Fingerprint == oldFingerprint {
			t.Errorf("%s: fingerprint %s, %v", id, got.Fingerprint, err)
		}
	}
}

// turns is a store that notes whose tokens were written.
type turns struct {
	store.Store
	order []string
}

func (s *turns) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	s.order = append(s.order, tenant)
	return s.Store.Update(ctx, tenant, fn)
}

// TestRecomputingServesTenantsInTurn: the first tenant has many tokens and the
// other has few.
func TestRecomputingServesTenantsInTurn(t *testing.T) {
	w := newWorld(t)
	many, few := min(w.tenant, w.other), max(w.tenant, w.other)
	for tenant, n := range map[string]int{many: 250, few: 10} {
		w.change(tenant, func(ctx context.Context, tx store.Tx) error {
			for range n {
				if err := tx.InsertToken(ctx, storetest.SomeToken()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	s := &turns{Store: w.store}
	n, err := token.New(s, w.ring, token.Options{Now: w.clock.Now}).RecomputeFingerprints(t.Context())
	if at := slices.Index(s.order, few); n != 260 || err != nil || at != 4 {
		t.Errorf("RecomputeFingerprints = %d, %v, and %d batches were written before the tenant with few tokens; want 260, and the four of one turn", n, err, at)
	}
}
