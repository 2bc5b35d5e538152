package server

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// keyRoutes are the rows of the admin socket that look after keys.
func (s *Server) keyRoutes() []httpapi.Route {
	return []httpapi.Route{
		{Pattern: "GET /keys", Auth: httpapi.AdminSocket, Handle: s.keyStatus},
		{Pattern: "POST /keys/rotate-kek", Auth: httpapi.AdminSocket, Handle: s.rotateKEK},
		{Pattern: "POST /keys/drop-kek", Auth: httpapi.AdminSocket, Body: httpapi.JSON, Handle: s.dropKEK},
		{Pattern: "POST /tenants/{tenant}/rotate-key", Auth: httpapi.AdminSocket, Handle: s.rotateTenant},
	}
}

func (s *Server) keyStatus(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	_ = s.kms.Reload() // a key file that cannot be used is reported by rotations and at the next start
	out := admin.KeyStatus{Tenants: []admin.TenantKeys{}}
	err := s.ring.Status(r.Context(), func(t keyring.TenantStatus) error {
		row := admin.TenantKeys{Tenant: t.Tenant, KEKs: t.KEKs, Rotation: string(t.Rotation.Phase)}
		for _, k := range t.Data {
			row.Keys = append(row.Keys, admin.DataKey{ID: fmt.Sprintf("%08x", k.ID), Primary: k.Primary, MadeAt: k.Made, Values: k.Values})
		}
		out.Tenants = append(out.Tenants, row)
		return nil
	})
	if err != nil {
		return err
	}
	out.Primary, out.KEKs = s.kms.Primary(), s.kms.IDs()
	return httpapi.WriteJSON(w, http.StatusOK, out)
}

// rotateKEK wraps everything with the primary key-encryption key of the file,
// and adds one first when everything is: the operator may have put a file with
// a new one in its place, here and on every other server. The old one stays
// readable. When a run was cut short, the next one goes on with the same key.
func (s *Server) rotateKEK(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	return follow(w, func(say func(string)) (any, error) {
		if err := s.kms.Reload(); err != nil {
			return nil, err
		}
		old, err := s.ring.OldKEKs(r.Context())
		if err != nil {
			return nil, err
		}
		if len(old) == 0 {
			id, err := s.kms.Rotate(r.Context())
			if err != nil {
				return nil, err
			}
			say("made key-encryption key " + id)
		} else {
			say("going on with key-encryption key " + s.kms.Primary())
		}
		err = s.ring.RotateKEK(r.Context(), func(n int) { say(fmt.Sprintf("wrapped %d keysets anew", n)) })
		return nil, err
	})
}

var (
	errNoKEK    = fault.New(fault.NotFound, "there is no such key-encryption key")
	errKEKInUse = fault.New(fault.Conflict, "the key-encryption key is still in use: run 'tokenkeep key rotate-kek' first")
)

func (s *Server) dropKEK(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	var in admin.DropKEK
	if err := httpapi.Decode(r, &in); err != nil {
		return err
	}
	if !slices.Contains(s.kms.IDs(), in.ID) {
		return errNoKEK
	}
	err := s.ring.DropKEK(r.Context(), in.ID, s.kms.Drop)
	var elsewhere *keyring.Unsupported
	if errors.As(err, &elsewhere) { // the operator is told what to run there
		return httpapi.WriteJSON(w, http.StatusConflict, api.Problem{Title: http.StatusText(http.StatusConflict), Status: http.StatusConflict, Detail: elsewhere.Error()})
	}
	if err != nil {
		return asFault(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// rotateTenant gives a tenant a new data key, seals everything with it, and
// destroys the old one.
func (s *Server) rotateTenant(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	tenant := directory.Operator(r.PathValue("tenant")).Tenant()
	if _, err := s.ring.For(r.Context(), tenant); err != nil {
		return asFault(err)
	}
	return follow(w, func(say func(string)) (any, error) {
		err := s.ring.ReplaceTenantKey(r.Context(), tenant, func(at keyring.Rotation) {
			say(fmt.Sprintf("%s: looked at %d rows, sealed %d anew", at.Phase, at.Seen, at.Resealed))
			if at.Phase == keyring.Resealed {
				say("destroying the old key, once no request from before is under way")
			}
		})
		if err != nil {
			return nil, err
		}
		return nil, s.store.Update(r.Context(), tenant, func(tx store.Tx) error {
			return tx.AppendLog(r.Context(), audit.Announced(tenant, s.now(), audit.EventRotated, audit.Tenant, tenant, audit.Rotate, "data key rotated"))
		})
	})
}
