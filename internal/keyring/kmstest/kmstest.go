// Package kmstest checks a KMS against what keyring expects of one.
//
// It promises that an implementation which passes keeps every word of
// keyring.KMS that can be seen from outside. It never needs to know how the
// implementation works, and asks it for no more than a few hundred calls.
package kmstest

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
)

// Fixture is a KMS under test.
type Fixture struct {
	KMS keyring.KMS
	// Rotate gives the KMS a new primary key and keeps the old one readable; nil
	// for a KMS whose keys have versions that it does not show.
	Rotate func(t *testing.T)
	// Other is a KMS with other keys.
	Other keyring.KMS
	// Fail lets the service that the KMS calls fail from then on; nil for a KMS
	// without a service. The texts of its errors contain Echo.
	Fail func(Fault)
	// Hung gets one for every call that the service leaves without a response.
	Hung <-chan struct{}
}

// Fault is what a service does instead of its work.
type Fault string

// The faults. None lets the service work again.
const (
	None      Fault = ""
	Down      Fault = "down"      // no connection, or 5xx
	Throttled Fault = "throttled" // too many calls
	Disabled  Fault = "disabled"  // the key is disabled or to be deleted
	Denied    Fault = "denied"    // the server lacks a permission
	Hangs     Fault = "hangs"     // no response
	Garbled   Fault = "garbled"   // success, and no response that can be read
)

// Faults is the part of a fake service that fails when it is told to.
type Faults struct {
	Hung chan struct{} // gets one for every call without a response

	mu  sync.Mutex // guards now
	now Fault
}

// NewFaults returns one that lets the service work.
func NewFaults() *Faults { return &Faults{Hung: make(chan struct{}, 100)} }

// Set is for Fixture.Fail.
func (f *Faults) Set(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = fault
}

// Instead responds in place of the service, and reports whether it did. refuse
// responds as the service does when it is down, throttled, disabled or denied.
func (f *Faults) Instead(w http.ResponseWriter, r *http.Request, refuse func(Fault)) bool {
	f.mu.Lock()
	fault := f.now
	f.mu.Unlock()
	switch fault {
	case None:
		return false
	case Garbled:
		_, _ = io.WriteString(w, "<html>"+Echo)
	case Hangs:
		f.Hung <- struct{}{}
		<-r.Context().Done()
	default:
		refuse(fault)
	}
	return true
}

// NewKey returns a key with which a fake service encrypts.
func NewKey(t *testing.T) cipher.AEAD {
	t.Helper()
	raw := make([]byte, 32)
	_, _ = rand.Read(raw)
	block, err := aes.NewCipher(raw)
	if err != nil {
		t.Fatal(err)
	}
	key, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Calls returns settings for calls of a service that do not wait, on a clock that
// goes on by a minute whenever it is read. A slow machine is no failure of the
// service: a call has an hour.
func Calls() envelope.Options {
	var minutes atomic.Int64
	return envelope.Options{
		Timeout: time.Hour,
		Wait:    func(context.Context, time.Duration) error { return nil },
		Now:     func() time.Time { return time.Unix(60*minutes.Add(1), 0) },
	}
}

// Echo is what a service under test puts into the texts of its errors, as real
// ones are known to put plaintext there.
const Echo = "echoed-plaintext"

// Run checks the implementation that open makes, again for each test.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for name, test := range map[string]func(*testing.T, Fixture){
		"what was wrapped comes back":                  wrapsAndUnwraps,
		"wrapping twice gives different bytes":         wrapsAfresh,
		"ids are short and printable":                  namesKeys,
		"other associated data does not open":          bindsAssociatedData,
		"changed bytes do not open":                    noticesChanges,
		"another id does not open":                     noticesIDs,
		"another KMS does not open":                    noticesOtherKeys,
		"an ended context ends the call":               heedsContext,
		"after a rotation old and new keys both open":  rotates,
		"wrapping and rotating at once loses nothing":  isSafeForConcurrentUse,
		"the arguments are not changed and not kept":   leavesArgumentsAlone,
		"an id of the wrong key of the same KMS fails": noticesOwnOtherKey,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
	t.Run("a service that fails loses nothing", func(t *testing.T) {
		if open(t).Fail == nil {
			t.Skip("it calls no service")
		}
		for fault, want := range map[Fault]error{
			Down: keyring.ErrKMSUnavailable, Throttled: keyring.ErrKMSUnavailable, Garbled: keyring.ErrKMSUnavailable,
			Disabled: keyring.ErrKEKRefused, Denied: keyring.ErrKEKRefused,
		} {
			t.Run(string(fault), func(t *testing.T) { fails(t, open(t), fault, want) })
		}
		t.Run(string(Hangs), func(t *testing.T) { hangs(t, open(t)) })
	})
}

// fails checks that errors say what they must and nothing else, and that
// everything works again afterwards.
func fails(t *testing.T, f Fixture, fault Fault, want error) {
	wrapped, id := wrap(t, f.KMS, "key", "tenant")
	f.Fail(fault)
	_, _, wrapErr := f.KMS.Wrap(t.Context(), []byte("key"), nil)
	got, unwrapErr := f.KMS.Unwrap(t.Context(), id, wrapped, []byte("tenant"))
	for _, err := range []error{wrapErr, unwrapErr} {
		if !errors.Is(err, want) || errors.Is(err, keyring.ErrUnwrap) || errors.Is(err, keyring.ErrNoKEK) || got != nil {
			t.Errorf("while the service is %s: %v, want %v", fault, err, want)
		}
		if err != nil && strings.Contains(err.Error(), Echo) {
			t.Errorf("an error repeats what the service said: %v", err)
		}
	}
	f.Fail(None)
	opens(t, f.KMS, id, wrapped, "tenant", "key")
}

// hangs checks that a caller who leaves does not wait for the service.
func hangs(t *testing.T, f Fixture) {
	wrapped, id := wrap(t, f.KMS, "key", "tenant")
	f.Fail(Hangs)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-f.Hung
		cancel()
	}()
	if _, err := f.KMS.Unwrap(ctx, id, wrapped, []byte("tenant")); !errors.Is(err, context.Canceled) {
		t.Errorf("Unwrap = %v, want context.Canceled", err)
	}
	f.Fail(None)
	opens(t, f.KMS, id, wrapped, "tenant", "key")
}

func wrap(t *testing.T, kms keyring.KMS, plaintext, associated string) (wrapped []byte, id string) {
	t.Helper()
	wrapped, id, err := kms.Wrap(t.Context(), []byte(plaintext), []byte(associated))
	if err != nil {
		t.Fatalf("Wrap = %v", err)
	}
	return wrapped, id
}

func opens(t *testing.T, kms keyring.KMS, id string, wrapped []byte, associated, want string) {
	t.Helper()
	got, err := kms.Unwrap(t.Context(), id, wrapped, []byte(associated))
	if err != nil || string(got) != want {
		t.Errorf("Unwrap = %d bytes, %v, want the %d that were wrapped", len(got), err, len(want))
	}
}

func refuses(t *testing.T, kms keyring.KMS, id string, wrapped []byte, associated string) {
	t.Helper()
	got, err := kms.Unwrap(t.Context(), id, wrapped, []byte(associated))
	if !errors.Is(err, keyring.ErrUnwrap) || got != nil {
		t.Errorf("Unwrap = %d bytes, %v, want ErrUnwrap", len(got), err)
	}
}

// notices is refuses for bytes that were changed: a service may take them for
// what a key encrypted that is not allowed any more.
func (f Fixture) notices(t *testing.T, id string, wrapped []byte) {
	t.Helper()
	got, err := f.KMS.Unwrap(t.Context(), id, wrapped, []byte("tenant"))
	if got != nil || !errors.Is(err, keyring.ErrUnwrap) && (f.Fail == nil || !errors.Is(err, keyring.ErrKEKRefused)) {
		t.Errorf("Unwrap of changed bytes = %d bytes, %v, want ErrUnwrap", len(got), err)
	}
}

func wrapsAndUnwraps(t *testing.T, f Fixture) {
	for _, size := range []int{0, 1, 100, 4096} {
		plaintext := string(bytes.Repeat([]byte{'k'}, size))
		wrapped, id := wrap(t, f.KMS, plaintext, "tenant")
		if size > 8 && bytes.Contains(wrapped, []byte(plaintext)) {
			t.Errorf("Wrap of %d bytes shows them", size)
		}
		opens(t, f.KMS, id, wrapped, "tenant", plaintext)
	}
	wrapped, id := wrap(t, f.KMS, "key", "")
	opens(t, f.KMS, id, wrapped, "", "key")
}

func wrapsAfresh(t *testing.T, f Fixture) {
	a, _ := wrap(t, f.KMS, "key", "tenant")
	b, _ := wrap(t, f.KMS, "key", "tenant")
	if bytes.Equal(a, b) {
		t.Error("two calls of Wrap gave the same bytes")
	}
}

func namesKeys(t *testing.T, f Fixture) {
	_, id := wrap(t, f.KMS, "key", "")
	if id != f.KMS.Primary() {
		t.Errorf("Wrap used %q, Primary is %q", id, f.KMS.Primary())
	}
	if len(id) < 1 || len(id) > 255 {
		t.Errorf("Primary has %d characters, want 1 to 255", len(id))
	}
	for _, c := range id {
		if c <= ' ' || c > '~' {
			t.Errorf("Primary = %q, want printable ASCII", id)
		}
	}
}

func bindsAssociatedData(t *testing.T, f Fixture) {
	wrapped, id := wrap(t, f.KMS, "key", "tenant")
	for _, other := range []string{"", "tenan", "tenant ", "Tenant"} {
		refuses(t, f.KMS, id, wrapped, other)
	}
}

func noticesChanges(t *testing.T, f Fixture) {
	wrapped, id := wrap(t, f.KMS, "key", "tenant")
	for i := range wrapped {
		changed := bytes.Clone(wrapped)
		changed[i] ^= 1
		f.notices(t, id, changed)
	}
	f.notices(t, id, wrapped[:len(wrapped)-1])
	f.notices(t, id, append(bytes.Clone(wrapped), 0))
	f.notices(t, id, wrapped[:4])
	f.notices(t, id, nil)
}

func noticesIDs(t *testing.T, f Fixture) {
	wrapped, id := wrap(t, f.KMS, "key", "tenant")
	for _, other := range []string{"", "none", id + "0", id[:len(id)-1]} {
		refuses(t, f.KMS, other, wrapped, "tenant")
		if f.KMS.Owns(other) {
			t.Errorf("Owns(%q) = true, want only its own", other)
		}
	}
	if !f.KMS.Owns(id) {
		t.Errorf("Owns(%q) = false for the id of Wrap", id)
	}
}

func noticesOtherKeys(t *testing.T, f Fixture) {
	wrapped, id := wrap(t, f.KMS, "key", "tenant")
	if f.Other.Primary() == id {
		t.Fatalf("Primary of another KMS is %q too", id)
	}
	refuses(t, f.Other, id, wrapped, "tenant")
	refuses(t, f.Other, f.Other.Primary(), wrapped, "tenant")
}

func noticesOwnOtherKey(t *testing.T, f Fixture) {
	if f.Rotate == nil {
		t.Skip("it shows no versions")
	}
	wrapped, _ := wrap(t, f.KMS, "key", "tenant")
	f.Rotate(t)
	refuses(t, f.KMS, f.KMS.Primary(), wrapped, "tenant")
}

func heedsContext(t *testing.T, f Fixture) {
	wrapped, id := wrap(t, f.KMS, "key", "tenant")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := f.KMS.Wrap(ctx, []byte("key"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Wrap = %v, want context.Canceled", err)
	}
	if _, err := f.KMS.Unwrap(ctx, id, wrapped, []byte("tenant")); !errors.Is(err, context.Canceled) {
		t.Errorf("Unwrap = %v, want context.Canceled", err)
	}
}

func rotates(t *testing.T, f Fixture) {
	if f.Rotate == nil {
		t.Skip("it shows no versions")
	}
	old, oldID := wrap(t, f.KMS, "old", "tenant")
	f.Rotate(t)
	wrapped, id := wrap(t, f.KMS, "new", "tenant")
	if id == oldID || id != f.KMS.Primary() {
		t.Errorf("after a rotation Wrap used %q, Primary is %q, before it was %q", id, f.KMS.Primary(), oldID)
	}
	opens(t, f.KMS, oldID, old, "tenant", "old")
	opens(t, f.KMS, id, wrapped, "tenant", "new")
}

func isSafeForConcurrentUse(t *testing.T, f Fixture) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 20 {
				wrapped, id, err := f.KMS.Wrap(t.Context(), []byte("key"), nil)
				if err != nil {
					t.Errorf("Wrap = %v", err)
					return
				}
				opens(t, f.KMS, id, wrapped, "", "key")
			}
		})
	}
	if f.Rotate != nil {
		f.Rotate(t)
	}
	group.Wait()
}

func leavesArgumentsAlone(t *testing.T, f Fixture) {
	plaintext, associated := []byte("key"), []byte("tenant")
	wrapped, id, err := f.KMS.Wrap(t.Context(), plaintext, associated)
	if err != nil {
		t.Fatal(err)
	}
	if string(plaintext) != "key" || string(associated) != "tenant" {
		t.Error("Wrap changed its arguments")
	}
	clear(plaintext)
	clear(associated)
	kept := bytes.Clone(wrapped)
	opens(t, f.KMS, id, wrapped, "tenant", "key")
	if !bytes.Equal(kept, wrapped) {
		t.Error("Unwrap changed its arguments")
	}
}
