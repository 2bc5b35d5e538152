package server_test

import (
	"cmp"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// scrape returns the metrics, wherever the server has them.
func scrape(t *testing.T, k *keeptest.Server) string {
	t.Helper()
	response, err := k.Client.Get(cmp.Or(k.MetricsURL(), k.URL) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET /metrics = %d, %v", response.StatusCode, err)
	}
	return string(b)
}

func TestMetricsAreWhereTheyWereAskedFor(t *testing.T) {
	beside := keeptest.Start(t, keeptest.Options{})
	apart := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"metrics_addr": "127.0.0.1:0"}, Routes: restartRows})
	for _, test := range []struct {
		url  string
		want int
	}{
		{beside.URL + "/metrics", http.StatusOK},
		{apart.URL + "/metrics", http.StatusNotFound},
		{apart.MetricsURL() + "/metrics", http.StatusOK},
		{apart.MetricsURL() + "/slow", http.StatusNotFound},
	} {
		response, err := beside.Client.Get(test.url)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("GET %s = %d, want %d", test.url, response.StatusCode, test.want)
		}
		if origin := response.Header.Get("Access-Control-Allow-Origin"); test.want == http.StatusOK && origin != "" {
			t.Errorf("GET %s lets the pages of %s read it", test.url, origin)
		}
	}
	// Requests of the API are counted wherever the figures are read.
	if !strings.Contains(scrape(t, apart), `tokenkeep_http_requests_total{method="GET",route="unmatched",status="4xx"} 1`) {
		t.Error("the request to the API is not among the metrics")
	}
}

var (
	metricName  = regexp.MustCompile(`^(tokenkeep|go|process)_[a-z0-9_]+$`)
	metricLabel = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
	plainWord   = regexp.MustCompile(`^[A-Za-z0-9_.+-]{0,40}$`)
)

func TestMetricsHaveKnownNamesAndNothingThatACallerShaped(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{Routes: restartRows})
	for _, path := range []string{"/healthz", "/tokens/" + planted, "/slow", "/%zz", "/healthz?" + planted} {
		request, err := http.NewRequest("GET", k.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.URL.Opaque = path // as it is, valid or not
		response, err := k.Client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	patterns := map[string]bool{}
	for _, row := range k.Routes() {
		patterns[row.Pattern] = true
	}
	ours := 0
	for line := range strings.Lines(scrape(t, k)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name := line[:strings.IndexAny(line, "{ ")]
		if !metricName.MatchString(name) {
			t.Errorf("the metric %s is nobody's", name)
		}
		if strings.HasPrefix(name, "tokenkeep_") {
			ours++
		}
		for _, label := range metricLabel.FindAllStringSubmatch(line, -1) {
			_, notAddress := netip.ParseAddr(label[2])
			if !patterns[label[2]] && (!plainWord.MatchString(label[2]) || notAddress == nil) || strings.Contains(label[2], planted) {
				t.Errorf("%s has the label %s=%q: neither a pattern of the table nor a plain word", name, label[1], label[2])
			}
		}
	}
	if ours < 10 {
		t.Errorf("found %d lines of our own: the test looks in the wrong place", ours)
	}
}
