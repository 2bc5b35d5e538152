package operations_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// deployed is the path of a file in deploy/.
func deployed(name string) string { return filepath.Join("..", "..", "deploy", name) }

var (
	sample     = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{([^}]*)\})? `)
	labelName  = regexp.MustCompile(`([a-z_]+)="`)
	mention    = regexp.MustCompile(`\b((?:tokenkeep|process|go)_[a-z_]+)(?:\{([^}]*)\})?`)
	matchLabel = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
)

// scraped returns the labels of every metric that servers on both stores have,
// once something has happened on them.
func scraped(t *testing.T) map[string][]string {
	t.Helper()
	labels := map[string][]string{}
	for _, url := range []string{"", pgtest.Database(t)} {
		s := keeptest.Start(t, keeptest.Options{StoreURL: url, Settings: map[string]string{"rate_limit.per_address": "0.1"}})
		for range 4 { // more than the limit lets through
			s.Call(t, http.MethodGet, "/healthz", "", "")
			s.Call(t, http.MethodGet, "/tokens/nothing", "", "")
		}
		response, err := s.Client.Get(s.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range sample.FindAllStringSubmatch(string(text), -1) {
			for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
				labels[m[1]] = append(labels[m[1]], l[1])
			}
			labels[m[1]] = append(labels[m[1]], "job", "instance") // the scraper's own
		}
	}
	return labels
}

// expressions returns the texts behind a name in a document, however deep.
func expressions(v any, name string) (found []string) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if text, ok := inner.(string); ok && k == name {
				found = append(found, text)
			}
			found = append(found, expressions(inner, name)...)
		}
	case []any:
		for _, inner := range v {
			found = append(found, expressions(inner, name)...)
		}
	}
	return found
}

func TestEveryMetricOfTheAlertsAndTheDashboardExists(t *testing.T) {
	storetest.Long(t)
	known := scraped(t)
	var alerts, dashboard any
	if err := yaml.Unmarshal([]byte(file(t, "deploy", "prometheus", "alerts.yaml")), &alerts); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(file(t, "deploy", "grafana", "tokenkeep.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for name, exprs := range map[string][]string{
		"an alert":      expressions(alerts, "expr"),
		"the dashboard": append(expressions(dashboard, "expr"), expressions(dashboard, "query")...),
	} {
		mentioned := 0
		for _, expr := range exprs {
			for _, m := range mention.FindAllStringSubmatch(expr, -1) {
				mentioned++
				if known[m[1]] == nil {
					t.Errorf("%s asks for %s, which no server has", name, m[1])
				}
				for _, l := range matchLabel.FindAllStringSubmatch(m[2], -1) {
					if !slices.Contains(known[m[1]], l[1]) {
						t.Errorf("%s asks for the label %s of %s, which has %v", name, l[1], m[1], known[m[1]])
					}
				}
			}
		}
		if mentioned < 10 {
			t.Errorf("%s names %d metrics: the search is wrong", name, mentioned)
		}
	}
	anchors := map[string]bool{}
	for line := range strings.Lines(file(t, "docs", "runbooks.md")) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			anchors["docs/runbooks.md#"+strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-")] = true
		}
	}
	runbooks := expressions(alerts, "runbook")
	if len(runbooks) != len(expressions(alerts, "alert")) {
		t.Errorf("%d alerts name %d runbooks", len(expressions(alerts, "alert")), len(runbooks))
	}
	for _, page := range runbooks {
		if !anchors[page] {
			t.Errorf("an alert names %s, which is not there", page)
		}
	}
}

// tool runs a program, or skips where it is not installed.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(name + " is not installed")
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestTheAlertsFireWhenTheyShould(t *testing.T) {
	var alerts, tests any
	for name, to := range map[string]*any{"alerts.yaml": &alerts, "alerts_test.yaml": &tests} {
		if err := yaml.Unmarshal([]byte(file(t, "deploy", "prometheus", name)), to); err != nil {
			t.Fatal(err)
		}
	}
	for _, alert := range expressions(alerts, "alert") {
		if !slices.Contains(expressions(tests, "alertname"), alert) {
			t.Errorf("no test has %s fire", alert)
		}
	}
	promtool := cmp.Or(os.Getenv("KEEPTEST_PROMTOOL"), "promtool")
	tool(t, promtool, "check", "rules", deployed("prometheus/alerts.yaml"))
	tool(t, promtool, "test", "rules", deployed("prometheus/alerts_test.yaml"))
}

// TestTheUnitExposesLittle holds the exposure that systemd finds, in tenths:
// with what the sandbox of tenants' code needs, and without.
func TestTheUnitExposesLittle(t *testing.T) {
	dir := t.TempDir()
	for name, to := range map[string]string{
		"tokenkeep.service": "plain/tokenkeep.service", "no-code.conf": "without/tokenkeep.service.d/no-code.conf",
	} {
		text := file(t, "deploy", "systemd", name)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unit := file(t, "deploy", "systemd", "tokenkeep.service")
	if err := os.WriteFile(filepath.Join(dir, "without", "tokenkeep.service"), []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	for folder, threshold := range map[string]string{"plain": "27", "without": "15"} {
		out := tool(t, "systemd-analyze", "security", "--offline=true", "--threshold="+threshold, filepath.Join(dir, folder, "tokenkeep.service"))
		if strings.Contains(out, "ignoring") {
			t.Errorf("systemd does not know all of the unit:\n%s", out)
		}
	}
}

// object is what the test reads of a Kubernetes object.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name, Namespace string }
	Data       map[string]string
	Spec       struct {
		Replicas     int
		MinAvailable int `yaml:"minAvailable"`
		Template     struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Env   []struct{ Name string }
					Ports []struct {
						Name          string
						ContainerPort int `yaml:"containerPort"`
					}
					Security struct {
						ReadOnly   bool  `yaml:"readOnlyRootFilesystem"`
						Escalation *bool `yaml:"allowPrivilegeEscalation"`
					} `yaml:"securityContext"`
					ReadinessProbe probe `yaml:"readinessProbe"`
					LivenessProbe  probe `yaml:"livenessProbe"`
					StartupProbe   probe `yaml:"startupProbe"`
				}
			}
		}
	}
}

type probe struct {
	HTTPGet struct{ Path, Port, Scheme string } `yaml:"httpGet"`
}

func TestTheManifestsAreWhatTheServerUnderstands(t *testing.T) {
	objects := map[string]object{}
	for d := yaml.NewDecoder(strings.NewReader(file(t, "deploy", "kubernetes", "tokenkeep.yaml"))); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if o.APIVersion == "" || o.Metadata.Name != "tokenkeep" || o.Kind != "Namespace" && o.Metadata.Namespace != "tokenkeep" {
			t.Errorf("%s %s is of %q in %q", o.Kind, o.Metadata.Name, o.APIVersion, o.Metadata.Namespace)
		}
		objects[o.Kind] = o
	}
	for _, kind := range []string{"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceAccount"} {
		if _, there := objects[kind]; !there {
			t.Errorf("there is no %s", kind)
		}
	}
	deployment := objects["Deployment"].Spec
	if least := objects["PodDisruptionBudget"].Spec.MinAvailable; least < 1 || least >= deployment.Replicas {
		t.Errorf("the budget keeps %d of %d servers: none can be taken away, or all", least, deployment.Replicas)
	}
	pod := deployment.Template.Spec
	container := pod.Containers[0]

	path := filepath.Join(t.TempDir(), "tokenkeep.yaml")
	if err := os.WriteFile(path, []byte(objects["ConfigMap"].Data["tokenkeep.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	var environment []string
	for _, e := range container.Env {
		environment = append(environment, e.Name+"=x")
	}
	c, err := config.Load(path, environment, nil)
	if err != nil {
		t.Fatalf("the server refuses the configuration: %v", err)
	}
	if c.KEK.IsZero() || c.StoreURL.IsZero() {
		t.Error("the server gets no key or no database")
	}
	if grace := time.Duration(pod.Grace) * time.Second; grace <= c.DrainDelay+c.DrainTimeout {
		t.Errorf("the server is killed after %v, and may take %v to stop", grace, c.DrainDelay+c.DrainTimeout)
	}
	ports := map[string]string{}
	for _, p := range container.Ports {
		ports[p.Name] = "0.0.0.0:" + strconv.Itoa(p.ContainerPort)
	}
	if ports["api"] != c.Addr || ports["metrics"] != c.MetricsAddr {
		t.Errorf("the ports are %v, and the server listens on %s and %s", ports, c.Addr, c.MetricsAddr)
	}
	if !container.Security.ReadOnly || container.Security.Escalation == nil || *container.Security.Escalation {
		t.Error("the container may write to its root or gain rights")
	}
	if ready, live := container.ReadinessProbe.HTTPGet.Path, container.LivenessProbe.HTTPGet.Path; ready != "/readyz" || live != "/healthz" {
		t.Errorf("the probes ask %s and %s: a database that is away must take servers out, and not start them anew", ready, live)
	}
	s := keeptest.Start(t, keeptest.Options{})
	for name, p := range map[string]probe{"readiness": container.ReadinessProbe, "liveness": container.LivenessProbe, "startup": container.StartupProbe} {
		if got := s.Call(t, http.MethodGet, p.HTTPGet.Path, "", ""); got.Status != http.StatusOK || p.HTTPGet.Port != "api" || (p.HTTPGet.Scheme == "HTTPS") != (c.TLSCertFile != "") {
			t.Errorf("the probe of %s asks %s on %s by %s: %s", name, p.HTTPGet.Path, p.HTTPGet.Port, p.HTTPGet.Scheme, got)
		}
	}
}
