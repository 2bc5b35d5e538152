package doctor_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/doctor"
	"github.com/tokenkeep/tokenkeep/internal/limit"
)

const limits = `Limit                     Soft Limit           Hard Limit           Units
Max core file size        1                    unlimited            bytes
Max open files            20000                20000                files
`

// ward is a machine on which all is well.
type ward struct {
	t   *testing.T
	dir string
	doctor.Patient
}

func newWard(t *testing.T, now time.Time) *ward {
	t.Helper()
	w := &ward{t: t, dir: t.TempDir()}
	w.write("proc/7/limits", limits)
	w.write("proc/sys/kernel/core_pattern", "core\n")
	w.write("proc/swaps", "Filename Type Size Used Priority\n")
	w.write("kek", "a key")
	w.write("tokenkeep.yaml", "log.level: warn\n")
	w.write("data/tokenkeep.db", "a database")
	w.times("data/tokenkeep.db", now)
	w.times("kek", now)
	w.certificate(now.Add(-24*time.Hour), now.Add(90*24*time.Hour))
	w.chmod("data", 0o700)
	conf, err := config.Load("", nil, map[string]string{"data": w.path("data"), "kek.file": w.path("kek"), "tls.cert_file": w.path("cert.pem")})
	if err != nil {
		t.Fatal(err)
	}
	w.Patient = doctor.Patient{
		Config: conf, ConfigFile: w.path("tokenkeep.yaml"), Now: func() time.Time { return now }, PID: 7, Proc: w.path("proc"),
		Status: &admin.Status{Ready: true, Version: "v1", StartedAt: now, SandboxLevel: "full"},
		Keys:   &admin.KeyStatus{KEKs: []string{"local-1"}, Tenants: []admin.TenantKeys{{Keys: []admin.DataKey{{Primary: true, MadeAt: now.Add(-time.Hour)}}}}},
		Schema: func() (int, int, error) { return 3, 3, nil },
	}
	return w
}

func (w *ward) path(name string) string { return filepath.Join(w.dir, name) }

func (w *ward) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *ward) write(name, text string) {
	w.t.Helper()
	w.must(os.MkdirAll(filepath.Dir(w.path(name)), 0o700))
	w.must(os.WriteFile(w.path(name), []byte(text), 0o600))
}

func (w *ward) chmod(name string, mode os.FileMode) { w.must(os.Chmod(w.path(name), mode)) }
func (w *ward) times(name string, at time.Time)     { w.must(os.Chtimes(w.path(name), at, at)) }
func (w *ward) replace(name, old, with string) {
	b, err := os.ReadFile(w.path(name))
	w.must(err)
	w.write(name, strings.Replace(string(b), old, with, 1))
}
func (w *ward) database() {
	w.must(os.Remove(w.path("data/tokenkeep.db")))
	w.Config.StoreURLFile = w.path("url")
}
func (w *ward) offset(ms int64)           { w.database(); w.Status.ClockOffsetMS = &ms }
func (w *ward) tenant() *admin.TenantKeys { return &w.Keys.Tenants[0] }
func (w *ward) schema(has, knows int, err error) {
	w.Status, w.Schema = nil, func() (int, int, error) { return has, knows, err }
}

func (w *ward) public(api, fields string) {
	w.Config.PublicURL, w.Config.ElementsPublicURL = api, fields
}

func (w *ward) certificate(from, to time.Time) {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to, DNSNames: []string{"vault.example", "fields.vault.example"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	w.must(err)
	w.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

func TestEveryRowTellsGoodFromBad(t *testing.T) {
	now := time.Now()
	year := 366 * 24 * time.Hour
	for name, test := range map[string]struct {
		row   string
		spoil func(*ward)
		state doctor.State
		found string
	}{
		"a configuration that is refused": {"configuration", func(w *ward) { w.ConfigErr = errors.New("config: addr is odd") }, doctor.Fail, "addr is odd"},
		"no server":                       {"server", func(w *ward) { w.Status = nil }, doctor.Unknown, "no server is running"},
		"a server that is not ready":      {"server", func(w *ward) { w.Status.Ready = false }, doctor.Fail, "not ready"},

		"a clock that was set back":     {"clock", func(w *ward) { w.times("data/tokenkeep.db", now.Add(time.Hour)) }, doctor.Fail, "1h0m0s from now"},
		"the database's clock":          {"clock", func(w *ward) { w.offset(-120) }, doctor.OK, "120ms away"},
		"a clock that drifts":           {"clock", func(w *ward) { w.offset(5000) }, doctor.Warn, "5s away"},
		"a clock that is wrong":         {"clock", func(w *ward) { w.offset(-60000) }, doctor.Fail, "1m0s away"},
		"a database nobody asks":        {"clock", func(w *ward) { w.database(); w.Status = nil }, doctor.Unknown, "only a running server"},
		"a folder that lets others in":  {"data folder", func(w *ward) { w.chmod("data", 0o750) }, doctor.Fail, "0750"},
		"a file that lets others in":    {"data folder", func(w *ward) { w.chmod("data/tokenkeep.db", 0o644) }, doctor.Fail, "1 files"},
		"no folder":                     {"data folder", func(w *ward) { w.must(os.RemoveAll(w.path("data"))) }, doctor.Unknown, "not there yet"},
		"a key that others read":        {"key-encryption key file", func(w *ward) { w.chmod("kek", 0o640) }, doctor.Fail, "0640"},
		"no key":                        {"key-encryption key file", func(w *ward) { w.must(os.Remove(w.path("kek"))) }, doctor.Fail, "cannot be read"},
		"a key beside the data":         {"key-encryption key file", func(w *ward) { w.write("data/kek", "key"); w.Config.KEKFile = w.path("data/kek") }, doctor.Warn, "in the data folder"},
		"a key from elsewhere":          {"key-encryption key file", func(w *ward) { w.Config.KEKFile = "" }, doctor.Unknown, "not come from a file"},
		"a configuration others change": {"configuration file", func(w *ward) { w.chmod("tokenkeep.yaml", 0o666) }, doctor.Fail, "0666"},
		"a configuration others read":   {"configuration file", func(w *ward) { w.chmod("tokenkeep.yaml", 0o644) }, doctor.OK, "nobody else"},
		"no configuration file":         {"configuration file", func(w *ward) { w.ConfigFile = "" }, doctor.OK, "there is none"},

		"a certificate for three weeks":  {"TLS certificate", func(w *ward) { w.certificate(now.Add(-time.Hour), now.Add(21*24*time.Hour+time.Hour)) }, doctor.Warn, "ends in 21 days"},
		"a certificate for a day":        {"TLS certificate", func(w *ward) { w.certificate(now.Add(-time.Hour), now.Add(24*time.Hour)) }, doctor.Fail, "ends in"},
		"a certificate that ended":       {"TLS certificate", func(w *ward) { w.certificate(now.Add(-year), now.Add(-72*time.Hour)) }, doctor.Fail, "it ended"},
		"a certificate of tomorrow":      {"TLS certificate", func(w *ward) { w.certificate(now.Add(time.Hour), now.Add(year)) }, doctor.Fail, "not valid yet"},
		"a certificate that is none":     {"TLS certificate", func(w *ward) { w.write("cert.pem", "none") }, doctor.Fail, "holds no certificate"},
		"a certificate that is not here": {"TLS certificate", func(w *ward) { w.must(os.Remove(w.path("cert.pem"))) }, doctor.Fail, "cannot be read"},
		"no public address":              {"public address", func(*ward) {}, doctor.OK, "not set"},
		"a name of the certificate":      {"public address", func(w *ward) { w.public("https://vault.example", "https://fields.vault.example") }, doctor.OK, "at https://fields.vault.example"},
		"another name":                   {"public address", func(w *ward) { w.public("https://other.example", "") }, doctor.Warn, "host of public_url"},
		"another name for the fields":    {"public address", func(w *ward) { w.public("https://vault.example", "https://other.example") }, doctor.Warn, "host of elements.public_url"},
		"the same name twice":            {"public address", func(w *ward) { w.public("https://vault.example", "https://vault.example") }, doctor.Warn, "the same"},
		"a public address without TLS":   {"public address", func(w *ward) { w.public("https://x.example", ""); w.Config.TLSCertFile = "" }, doctor.OK, "at https://x.example"},
		"an unreadable certificate":      {"public address", func(w *ward) { w.public("https://x.example", ""); w.must(os.Remove(w.path("cert.pem"))) }, doctor.Unknown, "cannot be read"},
		"a name but no certificate":      {"public address", func(w *ward) { w.public("https://x.example", ""); w.write("cert.pem", "none") }, doctor.Unknown, "no certificate"},
		"no TLS":                         {"TLS certificate", func(w *ward) { w.Config.TLSCertFile = "" }, doctor.OK, "no TLS"},
		"TLS in front":                   {"TLS certificate", func(w *ward) { w.Config.TLSCertFile, w.Config.TLSTerminatedElsewhere = "", true }, doctor.Unknown, "in front"},

		"an old key":                  {"key-encryption key", func(w *ward) { w.times("kek", now.Add(-year)) }, doctor.Warn, "366 days ago"},
		"an old key and older ones":   {"key-encryption key", func(w *ward) { w.Keys.KEKs = []string{"a", "b", "c"} }, doctor.OK, "2 older ones"},
		"an old data key":             {"data keys", func(w *ward) { w.tenant().Keys[0].MadeAt = now.Add(-year) }, doctor.Warn, "1 tenants have a data key"},
		"a retired old data key":      {"data keys", func(w *ward) { w.tenant().Rotation = "retired" }, doctor.OK, "1 tenants"},
		"a rotation that was cut off": {"data keys", func(w *ward) { w.tenant().Rotation = "resealing" }, doctor.Warn, "not finished"},
		"keys that nobody tells":      {"data keys", func(w *ward) { w.Keys = nil }, doctor.Unknown, "only a running server"},

		"migrations to come":       {"migrations", func(w *ward) { w.schema(1, 3, nil) }, doctor.Warn, "2 migrations"},
		"a store of tomorrow":      {"migrations", func(w *ward) { w.schema(4, 3, nil) }, doctor.Fail, "newer release"},
		"a store that is damaged":  {"migrations", func(w *ward) { w.schema(0, 0, errors.New("no")) }, doctor.Fail, "cannot be read"},
		"a database that is ready": {"migrations", func(w *ward) { w.database() }, doctor.OK, "brought the store"},
		"a server left behind":     {"migrations", func(w *ward) { w.database(); w.Status.Outdated = true }, doctor.Warn, "newer release"},
		"a server that was killed": {"migrations", func(w *ward) { w.schema(-1, 3, nil) }, doctor.Unknown, "did not stop cleanly"},
		"a store that is current":  {"migrations", func(w *ward) { w.schema(3, 3, nil) }, doctor.OK, "number 3"},
		"a database nobody uses":   {"migrations", func(w *ward) { w.database(); w.Status = nil }, doctor.Unknown, "when it starts"},

		"a server without a sandbox": {"sandbox", func(w *ward) { w.Status.SandboxLevel = "" }, doctor.Unknown, "no running server"},
		"half a sandbox":             {"sandbox", func(w *ward) { w.Status.SandboxLevel = "reduced" }, doctor.Warn, "without namespaces"},
		"no sandbox":                 {"sandbox", func(w *ward) { w.Status.SandboxLevel = "unsafe_none" }, doctor.Fail, "no wall"},
		"no code":                    {"sandbox", func(w *ward) { w.Status.SandboxLevel = "off" }, doctor.OK, "no code"},

		"core dumps":           {"core dumps", func(w *ward) { w.replace("proc/7/limits", "1         ", "unlimited ") }, doctor.Warn, "memory to disk"},
		"core dumps of size 0": {"core dumps", func(w *ward) { w.replace("proc/7/limits", "1  ", "0  ") }, doctor.OK, "no memory"},
		"core dumps into a pipe": {"core dumps", func(w *ward) {
			w.replace("proc/7/limits", "1  ", "0  ")
			w.write("proc/sys/kernel/core_pattern", "|/bin/x")
		}, doctor.Warn, "pipes"},
		"a limit of 1 and a pipe": {"core dumps", func(w *ward) { w.write("proc/sys/kernel/core_pattern", "|/bin/x") }, doctor.OK, "no memory"},
		"swap":                    {"swap", func(w *ward) { w.write("proc/swaps", "Filename\n/dev/sda2 partition 1 0 -2\n") }, doctor.Warn, "swaps"},
		"few files":               {"open files", func(w *ward) { w.replace("proc/7/limits", "20000", "1024 ") }, doctor.Warn, "1024"},
		"any number of files":     {"open files", func(w *ward) { w.replace("proc/7/limits", "20000    ", "unlimited") }, doctor.OK, "no limit"},
		"a KMS that can be used":  {"KMS", func(*ward) {}, doctor.OK, "can be used"},
		"a KMS that refuses":      {"KMS", func(w *ward) { w.Status.KMS = "the KMS refuses" }, doctor.Fail, "the KMS refuses"},
		"a KMS without a server":  {"KMS", func(w *ward) { w.Status = nil }, doctor.Unknown, "no server"},
		"no limit reached":        {"limits", func(*ward) {}, doctor.OK, "no limit"},
		"limits reached": {"limits", func(w *ward) {
			w.Status.LimitsReached = []limit.Reached{{Name: limit.QueuedJobs, Count: 3, Last: time.Unix(0, 0)}}
		}, doctor.Warn, "queued_jobs 3 times"},
		"limits without a server": {"limits", func(w *ward) { w.Status = nil }, doctor.Unknown, "no server"},
		"a system without /proc":  {"open files", func(w *ward) { w.Proc = w.path("none") }, doctor.Unknown, "does not tell"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t, now)
			test.spoil(w)
			for _, f := range doctor.Examine(w.Patient) {
				if (f.Do == "") != (f.State == doctor.OK) || f.Found == "" {
					t.Errorf("%s is %s, found %q, and says to do %q", f.Name, f.State, f.Found, f.Do)
				}
				if f.Name == test.row && (f.State != test.state || !strings.Contains(f.Found, test.found)) {
					t.Errorf("%s is %s: %q, want %s with %q", f.Name, f.State, f.Found, test.state, test.found)
				}
				if strings.Contains(f.Found+f.Do, w.dir) {
					t.Errorf("%s repeats a path: %q", f.Name, f.Found)
				}
			}
		})
	}
}

func TestAHealthyMachineIsWell(t *testing.T) {
	w := newWard(t, time.Now())
	for _, f := range doctor.Examine(w.Patient) {
		// The disk is the machine's own.
		if f.State != doctor.OK && f.Name != "disk space" {
			t.Errorf("%s is %s: %s", f.Name, f.State, f.Found)
		}
	}
}

func TestLittleSpaceIsTold(t *testing.T) {
	for _, test := range []struct {
		free    int64
		percent float64
		want    doctor.State
	}{
		{100 << 30, 50, doctor.OK}, {100 << 30, 9, doctor.Warn}, {1<<30 - 1, 50, doctor.Warn}, {1 << 30, 10, doctor.OK}, {256<<20 - 1, 90, doctor.Fail}, {0, 0, doctor.Fail},
	} {
		if got, found, _ := doctor.JudgeSpace(test.free, test.percent); got != test.want {
			t.Errorf("%d bytes, %v %% = %s (%s), want %s", test.free, test.percent, got, found, test.want)
		}
	}
}
