// Package transittest is a server that speaks as much of Vault's protocol as
// package transit needs.
//
// It promises to encrypt for real, so that what was changed does not open, and
// to fail as Vault does when told to. It never listens beyond loopback.
package transittest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keyring/kmstest"
)

// Server is a server with one transit engine.
type Server struct {
	*httptest.Server
	// Hung gets one for every request that is left without a response.
	Hung chan struct{}

	mu           sync.Mutex // guards what follows
	fault        kmstest.Fault
	keys         map[string][]cipher.AEAD // by name; the versions from 1 on
	tokens       map[string]bool
	capabilities []string
	logins       int
	renewals     int
	lease        int64
	calls        int
}

// The credentials that it takes.
const (
	RootToken = "root-token-of-the-test"
	RoleID    = "role-of-the-test"
	SecretID  = "secret-of-the-test"
	JWT       = "jwt-of-the-test"
)

// New starts a server without keys.
func New(t testing.TB) *Server {
	s := &Server{
		Hung: make(chan struct{}, 100), keys: make(map[string][]cipher.AEAD), tokens: map[string]bool{RootToken: true},
		capabilities: []string{"update"}, lease: 3600,
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// URI returns the URI of a key with a query behind it.
func (s *Server) URI(key, query string) string {
	return "hcvault://" + strings.TrimPrefix(s.URL, "http://") + "/transit/keys/" + key + "?plain_http=true&" + query
}

// Create makes a key, or a new version of one.
func (s *Server) Create(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addVersion(key)
}

func (s *Server) addVersion(key string) {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw)
	block, err := aes.NewCipher(raw)
	if err != nil {
		panic(err)
	}
	a, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	s.keys[key] = append(s.keys[key], a)
}

// Delete removes a key.
func (s *Server) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
}

// Fail lets the server fail from now on.
func (s *Server) Fail(f kmstest.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Forget makes every token invalid except the root token.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = map[string]bool{RootToken: true}
}

// Allow sets the capabilities that the server reports.
func (s *Server) Allow(capabilities ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capabilities = capabilities
}

// Lease sets how many seconds tokens are good for.
func (s *Server) Lease(seconds int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = seconds
}

// Counts returns how often somebody logged in, renewed a token and called the engine.
func (s *Server) Counts() (logins, renewals, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins, s.renewals, s.calls
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	switch fault {
	case kmstest.Down:
		refuse(w, http.StatusServiceUnavailable, "Vault is sealed")
		return
	case kmstest.Throttled:
		refuse(w, http.StatusTooManyRequests, "rate limit quota exceeded")
		return
	case kmstest.Denied:
		refuse(w, http.StatusForbidden, "permission denied")
		return
	case kmstest.Garbled:
		_, _ = io.WriteString(w, "<html>"+kmstest.Echo)
		return
	case kmstest.Hangs:
		s.Hung <- struct{}{}
		<-r.Context().Done()
		return
	}
	var in struct {
		Plaintext, Ciphertext, Role, JWT string
		RoleID                           string `json:"role_id"`
		SecretID                         string `json:"secret_id"`
		Paths                            []string
	}
	if len(body) > 0 && json.Unmarshal(body, &in) != nil {
		refuse(w, http.StatusBadRequest, "failed to parse JSON input")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	switch {
	case path == "auth/approle/login" && in.RoleID == RoleID && in.SecretID == SecretID,
		path == "auth/kubernetes/login" && in.Role == RoleID && in.JWT == JWT:
		s.logins++
		s.grant(w)
		return
	case strings.HasPrefix(path, "auth/") && strings.HasSuffix(path, "/login"):
		refuse(w, http.StatusBadRequest, "invalid role or secret ID")
		return
	case !s.tokens[r.Header.Get("X-Vault-Token")]:
		refuse(w, http.StatusForbidden, "permission denied")
		return
	case path == "auth/token/renew-self":
		s.renewals++
		s.grant(w)
		return
	case path == "auth/token/lookup-self":
		respond(w, map[string]any{"data": map[string]any{"ttl": s.lease, "renewable": true}})
		return
	case path == "sys/capabilities-self":
		data := map[string]any{"capabilities": s.capabilities}
		for i, p := range in.Paths {
			data[p] = s.capabilities
			if i == 1 {
				data[p] = []string{"deny"}
			}
		}
		respond(w, map[string]any{"data": data})
		return
	}
	s.calls++
	operation, key, _ := strings.Cut(strings.TrimPrefix(path, "transit/"), "/")
	if fault == kmstest.Disabled {
		refuse(w, http.StatusBadRequest, "ciphertext or signature version is disallowed by policy (too old)")
		return
	}
	versions := s.keys[key]
	if len(versions) == 0 {
		refuse(w, http.StatusBadRequest, "encryption key not found")
		return
	}
	switch operation {
	case "encrypt":
		plaintext, err := base64.StdEncoding.DecodeString(in.Plaintext)
		if err != nil {
			refuse(w, http.StatusBadRequest, "failed to base64-decode plaintext")
			return
		}
		nonce := make([]byte, 12)
		_, _ = rand.Read(nonce)
		sealed := versions[len(versions)-1].Seal(nonce, nonce, plaintext, nil)
		respond(w, map[string]any{"data": map[string]any{"ciphertext": fmt.Sprintf("vault:v%d:%s", len(versions), base64.StdEncoding.EncodeToString(sealed))}})
	case "decrypt":
		var version int
		var text string
		if _, err := fmt.Sscanf(in.Ciphertext, "vault:v%d:%s", &version, &text); err != nil || version < 1 || version > len(versions) {
			refuse(w, http.StatusBadRequest, "invalid ciphertext: no prefix")
			return
		}
		sealed, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || len(sealed) < 12 {
			refuse(w, http.StatusBadRequest, "invalid ciphertext: could not decode base64")
			return
		}
		plaintext, err := versions[version-1].Open(nil, sealed[:12], sealed[12:], nil)
		if err != nil {
			refuse(w, http.StatusBadRequest, "cipher: message authentication failed")
			return
		}
		respond(w, map[string]any{"data": map[string]any{"plaintext": base64.StdEncoding.EncodeToString(plaintext)}})
	default:
		refuse(w, http.StatusNotFound, "no handler for route")
	}
}

// grant gives out a new token.
func (s *Server) grant(w http.ResponseWriter) {
	token := rand.Text()
	s.tokens[token] = true
	respond(w, map[string]any{"auth": map[string]any{"client_token": token, "lease_duration": s.lease, "renewable": true}})
}

func respond(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string][]string{"errors": {text, kmstest.Echo}})
}
