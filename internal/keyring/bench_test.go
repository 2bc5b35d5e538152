package keyring_test

import (
	"bytes"
	"testing"
)

func BenchmarkSeal256(b *testing.B) {
	w := newWorld(b)
	keys, value := w.keys(w.tenant()), bytes.Repeat([]byte{'v'}, 256)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := keys.Seal("4a1f8c9e-58a3-4b6c-9d0e-0123456789ab", "token.data", value); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen256(b *testing.B) {
	w := newWorld(b)
	keys := w.keys(w.tenant())
	sealed, err := keys.Seal("4a1f8c9e-58a3-4b6c-9d0e-0123456789ab", "token.data", bytes.Repeat([]byte{'v'}, 256))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := keys.Open("4a1f8c9e-58a3-4b6c-9d0e-0123456789ab", "token.data", sealed); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFingerprint(b *testing.B) {
	w := newWorld(b)
	keys := w.keys(w.tenant())
	b.ReportAllocs()
	for b.Loop() {
		fingerprint(keys, "card", "4242424242424242")
	}
}

func BenchmarkIndexTerm(b *testing.B) {
	w := newWorld(b)
	keys := w.keys(w.tenant())
	b.ReportAllocs()
	for b.Loop() {
		keys.IndexTerm("metadata.customer", "a folded value")
	}
}

func BenchmarkForCached(b *testing.B) {
	w := newWorld(b)
	tenant := w.tenant()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.ring.For(b.Context(), tenant); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEpochCached(b *testing.B) {
	w := newWorld(b)
	tenant := w.tenant()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.ring.Epoch(b.Context(), tenant); err != nil {
			b.Fatal(err)
		}
	}
}
