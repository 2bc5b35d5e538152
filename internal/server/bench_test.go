package server_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// BenchmarkConstantAnswer measures what the edge costs: GET /healthz through
// the whole handler, with its log record and metrics, beside net/http alone
// answering the same bytes. Both figures come from the same run and the same
// client, which shares the processors with the server.
func BenchmarkConstantAnswer(b *testing.B) {
	const answer = `{"status":"ok"}` + "\n"
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	defer bare.Close()
	edge := httptest.NewServer(httpapi.New(httpapi.Options{
		Logger: slog.New(slog.NewJSONHandler(io.Discard, nil)), Metrics: prometheus.NewRegistry(),
	}, nil))
	defer edge.Close()
	for _, connections := range []int{1, 32} {
		b.Run(fmt.Sprintf("%d connections", connections), func(b *testing.B) {
			var alone, whole float64
			for b.Loop() {
				// Turns are short and alternate, so that whatever else the
				// machine does meets both alike.
				for range 4 {
					alone += answersPerSecond(b, bare.URL+"/healthz", connections, 200*time.Millisecond)
					whole += answersPerSecond(b, edge.URL+"/healthz", connections, 200*time.Millisecond)
				}
			}
			b.ReportMetric(alone/4/float64(b.N), "bare-req/s")
			b.ReportMetric(whole/4/float64(b.N), "edge-req/s")
			b.ReportMetric(whole/alone, "edge/bare")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// answersPerSecond asks on so many connections for a while.
func answersPerSecond(b *testing.B, url string, connections int, long time.Duration) float64 {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	defer client.CloseIdleConnections()
	var asking sync.WaitGroup
	var answers atomic.Int64
	started := time.Now()
	for range connections {
		asking.Go(func() {
			for time.Since(started) < long {
				response, err := client.Get(url)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.StatusCode != http.StatusOK {
					b.Errorf("status %d", response.StatusCode)
					return
				}
				answers.Add(1)
			}
		})
	}
	asking.Wait()
	return float64(answers.Load()) / time.Since(started).Seconds()
}
