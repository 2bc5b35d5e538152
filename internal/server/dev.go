package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
)

// DevKeys is what development mode leaves in the data folder for scripts.
type DevKeys struct {
	BaseURL       string `json:"base_url"`
	TenantID      string `json:"tenant_id"`
	ManagementKey string `json:"management_key"`
	PrivateKey    string `json:"private_key"`
	PublicKey     string `json:"public_key"`
}

const (
	devKeysFile = "dev-keys.json"
	devKEKFile  = "dev-kek.json"
)

// devKEK returns the key-encryption key of a developer's data folder, and
// makes it on the first start. It lies beside what it protects, which is why
// development mode is not for real data.
func devKEK(data string) (path string, err error) {
	path = filepath.Join(data, devKEKFile)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		_, err := localkms.Generate(path)
		return path, err
	}
	return path, nil
}

// ReadDevKeys returns what a development server wrote into its data folder. The
// error is fs.ErrNotExist where there is none.
func ReadDevKeys(data string) (k DevKeys, err error) {
	b, err := os.ReadFile(filepath.Join(data, devKeysFile))
	if err != nil {
		return k, fmt.Errorf("read %s: %w", devKeysFile, err)
	}
	if err := json.Unmarshal(b, &k); err != nil {
		return k, fmt.Errorf("%s is not valid JSON: delete it and make new keys with 'tokenkeep application rotate-key'", devKeysFile)
	}
	return k, nil
}

// Demo makes the demo tenant on an empty store and leaves its keys in the data
// folder. On a later start it only notes the address, which may be another.
func (s *Server) Demo(ctx context.Context) (k DevKeys, fresh bool, err error) {
	defer func() { s.demo.Store(&k.PublicKey) }()
	path := filepath.Join(s.config.Data, devKeysFile)
	some := errors.New("there is a tenant")
	err = s.directory.AllTenants(ctx, func(directory.Tenant) error { return some })
	if errors.Is(err, some) {
		k, err := ReadDevKeys(s.config.Data)
		if errors.Is(err, os.ErrNotExist) {
			return DevKeys{BaseURL: s.BaseURL()}, false, nil
		}
		if err != nil {
			return k, false, err
		}
		k.BaseURL = s.BaseURL()
		return k, false, WriteFile(path, k)
	}
	if err != nil {
		return k, false, err
	}
	t, applications, err := s.directory.CreateTenant(ctx, "demo", directory.DemoApplications()...)
	if err != nil {
		return k, false, fmt.Errorf("make the demo tenant: %w", err)
	}
	k = DevKeys{
		BaseURL: s.BaseURL(), TenantID: t.ID,
		ManagementKey: applications[0].Key.Reveal(), PrivateKey: applications[1].Key.Reveal(), PublicKey: applications[2].Key.Reveal(),
	}
	return k, true, WriteFile(path, k)
}

// demoKey returns the public key of the demo tenant; "" where there is none.
func (s *Server) demoKey() string {
	if key := s.demo.Load(); key != nil {
		return *key
	}
	return ""
}
