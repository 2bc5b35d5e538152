package proxy_test

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const (
	streamed = 64 << 20 // bytes; longer ones are for the benchmark
	texts    = 32 << 20
)

// noise yields n bytes that are the same each time.
func noise(n int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{1}), n)
}

// calm yields n bytes of text without an expression.
type calm struct{ left int64 }

func (c *calm) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), c.left)
	for i := range p[:n] {
		p[i] = "some text { } "[i%14]
	}
	c.left -= n
	return int(n), nil
}

// TestStreamsPassInConstantMemory sends much more than the bound on bodies
// there and back, at the same time.
func TestStreamsPassInConstantMemory(t *testing.T) {
	storetest.Long(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = io.Copy(w, r.Body)
	}))
	defer s.Close()
	w := start(t, nil, nil)
	w.proxy = w.define(t, `{"name":"echo","destination_url":"`+s.URL+`"}`)
	for name, c := range map[string]struct {
		media  string
		body   func() io.Reader
		length int64 // as the caller announces it
		size   int64
	}{
		"bytes":                   {"application/octet-stream", func() io.Reader { return noise(streamed) }, streamed, streamed},
		"text beyond the bound":   {"text/plain", func() io.Reader { return &calm{texts} }, texts, texts},
		"JSON beyond the bound":   {"application/json", func() io.Reader { return &calm{texts} }, -1, texts},
		"a form beyond the bound": {"application/x-www-form-urlencoded", func() io.Reader { return &calm{texts} }, -1, texts},
		"parts beyond the bound":  {"multipart/form-data; boundary=B", func() io.Reader { return &calm{texts} }, -1, texts},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), "POST", w.URL+"/proxy/", io.NopCloser(c.body()))
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = c.length
			r.Header.Set("SVC-PROXY-KEY", w.proxy.Key)
			r.Header.Set("SVC-API-KEY", w.private)
			r.Header.Set("Content-Type", c.media)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			resp, err := w.Client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			got, want := sha256.New(), sha256.New()
			n, err := io.Copy(got, resp.Body)
			runtime.ReadMemStats(&after)
			_, _ = io.Copy(want, c.body())
			if err != nil || n != c.size || string(got.Sum(nil)) != string(want.Sum(nil)) {
				t.Errorf("%d bytes came back, %v, want all %d as they were", n, err, c.size)
			}
			// All that was allocated on the way, freed or not: client, server,
			// destination and the bound of 5 MiB for texts together.
			grown := after.TotalAlloc - before.TotalAlloc
			t.Log(grown >> 20)
			if grown > 48<<20 {
				t.Errorf("%d MiB were allocated for %d MiB", grown>>20, streamed>>20)
			}
		})
	}
}

// BenchmarkAGigabyteThereAndBack tells what a long stream costs.
func BenchmarkAGigabyteThereAndBack(b *testing.B) {
	const size = 1 << 30
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	}))
	defer s.Close()
	w := start(b, nil, nil)
	w.proxy = w.define(b, `{"name":"echo","destination_url":"`+s.URL+`"}`)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), "POST", w.URL+"/proxy/", &calm{size})
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("SVC-PROXY-KEY", w.proxy.Key)
		r.Header.Set("SVC-API-KEY", w.private)
		r.Header.Set("Content-Type", "application/octet-stream")
		resp, err := w.Client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
			b.Fatalf("%d bytes came back, %v", n, err)
		}
		_ = resp.Body.Close()
	}
}
