package token_test

import (
	"testing"
	"unicode"

	"golang.org/x/text/cases"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// TestTheMetadataFilterFoldsAsUnicodeDoes stores one spelling and finds it by
// the others, in lists and in searches.
func TestTheMetadataFilterFoldsAsUnicodeDoes(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		name, stored string
		finds        []string
		misses       []string
	}{
		{"ASCII", "Gold Tier", []string{"gold tier", "GOLD TIER"}, []string{"gold", "goldtier"}},
		{"sharp s", "Straße", []string{"straße", "STRASSE", "STRAẞE", "strasse"}, []string{"strase"}},
		{"what a sharp s becomes", "GROSS", []string{"groß", "GROẞ", "gross"}, nil},
		{"final sigma", "ΟΔΟΣ", []string{"οδος", "οδοσ", "Οδος"}, []string{"οδο"}},
		{"the Kelvin sign", "300 K", []string{"300 k", "300 K"}, nil},
		{"the Angstrom sign", "5 Å", []string{"5 å", "5 Å"}, nil},
		{"a long s", "Congreſs", []string{"CONGRESS", "congress"}, nil},
		{"a dotted capital i is an i with a dot", "İstanbul", []string{"i̇stanbul", "İSTANBUL"}, []string{"istanbul", "ıstanbul"}},
		{"a dotless i is its own letter", "ısı", []string{"ısı"}, []string{"isi", "ISI"}},
		{"ligatures", "oﬃce", []string{"office", "OFFICE", "OﬃCE"}, nil},
		{"an iota below", "ᾳ", []string{"αι", "ΑΙ", "ᾼ"}, nil},
		{"Cherokee", "Ꭰ", []string{"ꭰ", "Ꭰ"}, nil},
		{"accents count", "café", []string{"CAFÉ"}, []string{"cafe"}},
		{"how accents are written counts", "caf\u00e9", nil, []string{"cafe\u0301"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{t: t, store: w.store, ring: w.ring, clock: w.clock, tokens: w.tokens, tenant: w.newTenant(), other: w.other}
			id := w.mustCreate(w.revealing(), `{"type":"token","data":`+quoted(tt.stored)+`,"metadata":{"word":`+quoted(tt.stored)+`},"search_indexes":["{{ data }}"]}`).ID
			found := func(value string) (list, search, data bool) {
				by, _, err := w.tokens.List(t.Context(), w.revealing(), token.Filter{Metadata: map[string]string{"word": value}}, store.Page{Limit: 10})
				if err != nil {
					t.Fatal(err)
				}
				searched := func(field string) bool {
					list, _, err := w.tokens.Search(t.Context(), w.revealing(), field+":"+quoted(value), store.Page{Limit: 10})
					if err != nil {
						t.Fatal(err)
					}
					return len(list) == 1 && list[0].ID == id
				}
				return len(by) == 1 && by[0].ID == id, searched("metadata.word"), searched("data")
			}
			for _, value := range append(tt.finds, tt.stored) {
				if list, search, data := found(value); !list || !search || !data {
					t.Errorf("%+q finds %+q: %t in a list, %t in a search, %t by its index; want all", value, tt.stored, list, search, data)
				}
			}
			for _, value := range tt.misses {
				if list, search, data := found(value); list || search || data {
					t.Errorf("%+q finds %+q: %t in a list, %t in a search, %t by its index; want none", value, tt.stored, list, search, data)
				}
			}
			if list, _, err := w.tokens.List(t.Context(), w.stranger(), token.Filter{Metadata: map[string]string{"word": tt.stored}}, store.Page{Limit: 10}); err != nil || len(list) != 0 {
				t.Errorf("the other tenant finds %d tokens, %v; want none", len(list), err)
			}
		})
	}
}

func quoted(s string) string { return text(jsonString(s)) }

// TestFoldingKeepsTheTermsOfLettersThatStayOne compares with the folding of
// older releases, under whose results terms are stored.
func TestFoldingKeepsTheTermsOfLettersThatStayOne(t *testing.T) {
	changed := 0
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r >= 0xD800 && r <= 0xDFFF {
			continue
		}
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		got := token.Fold(string(r))
		if len([]rune(cases.Fold().String(string(r)))) > 1 {
			changed++
			continue
		}
		if got != string(least) {
			t.Errorf("Fold(%U) = %+q, want %+q as before", r, got, string(least))
		}
	}
	if changed != 104 { // the full foldings of Unicode
		t.Errorf("%d letters become several, want 104", changed)
	}
}
