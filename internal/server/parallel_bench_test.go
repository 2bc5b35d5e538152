package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

// BenchmarkParallelReads reads cards through the whole handler, without sockets. Run
// it with -cpu 1,2 to see what a second processor is worth, and with
// -mutexprofile to see what locks reads share.
func BenchmarkParallelReads(b *testing.B) {
	data := filepath.Join(b.TempDir(), "data")
	conf, err := config.Load("", nil, map[string]string{"addr": "127.0.0.1:0", "data": data, "environment": "test", "drain.delay": "0s", "sandbox.level": "off"})
	if err != nil {
		b.Fatal(err)
	}
	conf.Dev = true
	s, err := server.New(b.Context(), conf, server.Options{Logger: slog.New(slog.NewJSONHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}()
	keys, _, err := s.Demo(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), keys.PrivateKey)
		r.Header.Set("Content-Type", api.MediaJSON)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
	}
	const cards = 1000
	var ids [cards]string
	for i := range ids {
		w := ask(http.MethodPost, "/tokens", fmt.Sprintf(`{"type":"token","data":"value %d"}`, i))
		var made api.Token
		if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code != http.StatusCreated {
			b.Fatalf("create: status %d, %v", w.Code, err)
		}
		ids[i] = made.ID
	}
	var n atomic.Int64
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if w := ask(http.MethodGet, "/tokens/"+ids[n.Add(1)*7919%cards], ""); w.Code != http.StatusOK {
				b.Errorf("read: status %d", w.Code)
				return
			}
		}
	})
}
