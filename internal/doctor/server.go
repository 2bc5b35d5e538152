package doctor

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/limit"
)

const day = 24 * time.Hour

// The ages and spans from which on something should be done.
const (
	oldKey         = 365 * day
	certificateDue = 30 * day
	certificateNow = 3 * day
	driftWarn      = 2 * time.Second
	driftFail      = 30 * time.Second // a short-lived key lives by the minute
)

const startIt = "start the server, and run this again"

func configuration(p Patient) (State, string, string) {
	if p.ConfigErr != nil {
		return Fail, strings.TrimPrefix(p.ConfigErr.Error(), "config: "), "correct it: a server does not start with it"
	}
	return OK, "a server would start with it", ""
}

func running(p Patient) (State, string, string) {
	switch {
	case p.Status == nil:
		return Unknown, "no server is running on the data folder", startIt
	case !p.Status.Ready:
		return Fail, "the server is running and not ready", "read its log: the store refuses changes, most often for want of disk space or of its database"
	}
	return OK, fmt.Sprintf("release %s, up since %s", p.Status.Version, p.Status.StartedAt.UTC().Format(time.RFC3339)), ""
}

// clock compares this machine's clock with the database's, or with the times
// of the embedded store's files: those lie in the future when it was set back.
func clock(p Patient) (State, string, string) {
	const put = "run a time service (chrony, systemd-timesyncd) on every machine"
	if p.embedded() {
		ahead := time.Duration(0)
		for _, name := range []string{"tokenkeep.db", "tokenkeep.db-wal"} {
			if info, err := os.Stat(inData(p, name)); err == nil {
				ahead = max(ahead, info.ModTime().Sub(p.Now()))
			}
		}
		if ahead > driftWarn {
			return Fail, fmt.Sprintf("the store was last written %s from now: the clock was set back", ahead.Round(time.Second)), put
		}
		return OK, "no file of the store is from the future", ""
	}
	if p.Status == nil || p.Status.ClockOffsetMS == nil {
		return Unknown, "only a running server can ask the database for the time", startIt
	}
	off := time.Duration(*p.Status.ClockOffsetMS) * time.Millisecond
	found := fmt.Sprintf("%s away from the database's clock", off.Abs())
	switch {
	case off.Abs() > driftFail:
		return Fail, found, put
	case off.Abs() > driftWarn:
		return Warn, found, put
	}
	return OK, found, ""
}

func certificate(p Patient) (State, string, string) {
	if p.Config.TLSCertFile == "" {
		if p.Config.TLSTerminatedElsewhere {
			return Unknown, "TLS ends in front of this server", "watch the certificate there"
		}
		return OK, "no TLS: only this machine can connect", ""
	}
	b, err := os.ReadFile(p.Config.TLSCertFile)
	if err != nil {
		return Fail, "tls.cert_file cannot be read", "make it readable for the server's user"
	}
	cert, ok := firstCertificate(b)
	if !ok {
		return Fail, "tls.cert_file holds no certificate", "put a PEM file with the chain there"
	}
	const renew = "renew it, then send the server SIGHUP"
	left := cert.NotAfter.Sub(p.Now())
	found := fmt.Sprintf("%s old, ends in %s", days(p.Now().Sub(cert.NotBefore)), days(left))
	switch {
	case left <= 0:
		return Fail, "it ended " + days(-left) + " ago", renew
	case p.Now().Before(cert.NotBefore):
		return Fail, "it is not valid yet", "correct the clock or the certificate"
	case left < certificateNow:
		return Fail, found, renew
	case left < certificateDue:
		return Warn, found, renew
	}
	return OK, found, ""
}

// firstCertificate returns the server's certificate, which comes before its chain.
func firstCertificate(b []byte) (*x509.Certificate, bool) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return cert, err == nil
}

// publicAddress checks the names under which browsers reach the server.
func publicAddress(p Patient) (State, string, string) {
	c := p.Config
	if c.ElementsURL() == "" {
		return OK, "public_url is not set: the policy of field pages names the host of each request", ""
	}
	if c.ElementsPublicURL == c.PublicURL {
		return Warn, "elements.public_url is the same as public_url", "give the field pages a host name apart from that of the API, or leave it out"
	}
	if c.TLSCertFile == "" {
		return OK, "field pages are at " + c.ElementsURL(), ""
	}
	b, err := os.ReadFile(c.TLSCertFile)
	if err != nil {
		return Unknown, "tls.cert_file cannot be read", "make it readable for the server's user"
	}
	cert, ok := firstCertificate(b)
	if !ok {
		return Unknown, "tls.cert_file holds no certificate", "put a PEM file with the chain there"
	}
	for _, s := range []struct{ setting, value string }{{"public_url", c.PublicURL}, {"elements.public_url", c.ElementsPublicURL}} {
		if u, err := url.Parse(s.value); err == nil && s.value != "" && cert.VerifyHostname(u.Hostname()) != nil {
			return Warn, "the TLS certificate does not name the host of " + s.setting, "get a certificate for both names, unless something in front has one"
		}
	}
	return OK, "field pages are at " + c.ElementsURL() + ", which the TLS certificate names", ""
}

// kekAge goes by the file, which is replaced when a key is added.
func kekAge(p Patient) (State, string, string) {
	more := ""
	if p.Keys != nil && len(p.Keys.KEKs) > 1 {
		more = fmt.Sprintf(", and %d older ones are kept", len(p.Keys.KEKs)-1)
	}
	if p.Config.KEKFile == "" {
		return Unknown, "it does not come from a file, so its age is not known" + more, "note when you made it, and rotate it once a year"
	}
	info, err := os.Stat(p.Config.KEKFile)
	if err != nil {
		return Fail, "kek.file cannot be read", "without it nothing opens: put it back from your copy"
	}
	age := p.Now().Sub(info.ModTime())
	found := "its file was last changed " + days(age) + " ago" + more
	if age > oldKey {
		return Warn, found, "run 'tokenkeep key rotate-kek'"
	}
	return OK, found, ""
}

func dataKeys(p Patient) (State, string, string) {
	if p.Keys == nil {
		return Unknown, "only a running server can tell", startIt
	}
	old, unfinished, oldest := 0, 0, time.Duration(0)
	for _, t := range p.Keys.Tenants {
		if t.Rotation != "" && t.Rotation != "retired" {
			unfinished++
		}
		for _, k := range t.Keys {
			if age := p.Now().Sub(k.MadeAt); k.Primary {
				oldest = max(oldest, age)
				if age > oldKey {
					old++
				}
			}
		}
	}
	switch {
	case unfinished > 0:
		return Warn, fmt.Sprintf("the rotation of %d tenants is not finished", unfinished), "run 'tokenkeep key rotate-tenant' on them again: 'tokenkeep key status' names them"
	case old > 0:
		return Warn, fmt.Sprintf("%d tenants have a data key older than a year", old), "run 'tokenkeep key rotate-tenant' on them: 'tokenkeep key status' names them"
	}
	return OK, fmt.Sprintf("%d tenants, the oldest key is %s old", len(p.Keys.Tenants), days(oldest)), ""
}

func migrations(p Patient) (State, string, string) {
	if p.Status != nil && p.Status.Outdated {
		return Warn, "a newer release has changed the database, which this server uses until it is replaced", "replace it by the newer release"
	}
	if p.Status != nil {
		return OK, "the running server has brought the store up to date", ""
	}
	if !p.embedded() {
		return Unknown, "a server brings the database up to date when it starts", startIt
	}
	has, knows, err := p.Schema()
	switch {
	case err != nil:
		return Fail, "the store cannot be read", "run 'tokenkeep store check'"
	case has < 0:
		return Unknown, "the last server did not stop cleanly, so the store does not tell", startIt
	case has > knows:
		return Fail, "a newer release wrote the store", "run that release, or restore a backup from before"
	case has < knows:
		return Warn, fmt.Sprintf("the next start runs %d migrations, which cannot be undone", knows-has), "take a backup first"
	}
	return OK, fmt.Sprintf("the schema is number %d, the newest that this release knows", has), ""
}

func sandbox(p Patient) (State, string, string) {
	level := ""
	if p.Status != nil {
		level = p.Status.SandboxLevel
	}
	switch level {
	case "":
		return Unknown, "no running server tells of a sandbox", "nothing, unless tenants are to run code"
	case "full":
		return OK, "code of tenants runs behind the full wall", ""
	case "off":
		return OK, "no code of tenants is run", ""
	case "reduced":
		return Warn, "code of tenants runs without namespaces of its own", "let the server's user make user namespaces: docs/sandbox.md says what it takes"
	}
	return Fail, "code of tenants runs behind no wall", "set sandbox.level to full: what it is now is for development"
}

// days puts a span into words.
func days(d time.Duration) string {
	if d < 2*day {
		return d.Round(time.Minute).String()
	}
	return fmt.Sprintf("%d days", int(d/day))
}

// limitsReached names the limits that callers reached within the last hour.
func limitsReached(p Patient) (State, string, string) {
	switch {
	case p.Status == nil:
		return Unknown, "no server is running on the data folder", startIt
	case len(p.Status.LimitsReached) == 0:
		return OK, "no limit was reached within the last hour", ""
	}
	var found, do []string
	for _, r := range p.Status.LimitsReached {
		found = append(found, fmt.Sprintf("%s %d times (%s)", r.Name, r.Count, r.Last.UTC().Format("15:04")))
		if row, ok := limit.Find(r.Name); ok {
			do = append(do, fmt.Sprintf("%s: %s", r.Name, row.Do))
		}
	}
	return Warn, "reached within the last hour: " + strings.Join(found, ", "), strings.Join(do, "; ")
}

// kmsUse reports what is wrong with the KMS that holds the key-encryption key.
func kmsUse(p Patient) (State, string, string) {
	switch {
	case p.Status == nil:
		return Unknown, "no server is running on the data folder", startIt
	case p.Status.KMS != "":
		return Fail, p.Status.KMS, "docs/kms.md says for each KMS which permissions the server needs, and docs/runbooks.md what to do when a key is lost, disabled or throttled"
	}
	return OK, "the key-encryption key can be used", ""
}
