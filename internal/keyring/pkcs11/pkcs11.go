// Package pkcs11 encrypts keys with an AES key in a PKCS#11 token, such as an HSM.
//
// It talks to the program tokenkeep-pkcs11, which loads the module. It promises
// that a module that crashes, hangs or prints garbage costs no more than the
// calls under way, that the program is started again with growing pauses, and
// that a wrong PIN is never tried twice: tokens lock themselves. The PIN goes to
// the program over a pipe; it never is in an argument, a variable, a log or an
// error. Nothing that a module says is passed on.
package pkcs11

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
	"github.com/tokenkeep/tokenkeep/internal/keyring/pkcs11/wire"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// Options are what does not stand in the URI.
type Options struct {
	// PIN is the PIN for URIs without a pin-source.
	PIN secret.Text
	// Program is the path of tokenkeep-pkcs11; "" means the one beside this
	// program, or else in PATH.
	Program string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// After calls a function later, unless it is stopped; nil means time.AfterFunc.
	After func(time.Duration, func()) (stop func() bool)
	// Envelope are the settings of calls. The program is killed when one takes
	// longer than their Timeout.
	Envelope envelope.Options
}

// Open returns the KMS of a key such as
// pkcs11:token=LABEL;object=KEY?module-path=/usr/lib/module.so&pin-source=file:/etc/tokenkeep/pin.
// It starts nothing.
func Open(uri string, o Options) (*envelope.KMS, error) {
	s, err := newService(uri, o)
	if err != nil {
		return nil, err
	}
	return envelope.New(s.at.id(), s, o.Envelope), nil
}

// Create generates the key of a URI inside the token and returns its id.
func Create(ctx context.Context, uri string, o Options) (id string, err error) {
	s, err := newService(uri, o)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }()
	_, err = s.call(ctx, wire.Create, nil)
	return s.at.id(), err
}

// service is one key, and the run of the program that uses it.
type service struct {
	at      location
	options Options

	mu      sync.Mutex // guards what follows
	process *process   // nil when none runs
	closed  bool
	// failures counts the runs that ended since one was of use. Until notBefore
	// there is no new one, and calls fail for the reason why.
	failures  int
	notBefore time.Time
	why       error
	// pin is what the last run got, and wrongPIN says that the token refused it.
	pin      secret.Text
	wrongPIN bool
}

func newService(uri string, o Options) (*service, error) {
	at, err := parse(uri)
	if err != nil {
		return nil, err
	}
	if o.Program == "" {
		o.Program = findProgram()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	o.Envelope.Timeout = cmp.Or(o.Envelope.Timeout, envelope.DefaultTimeout)
	return &service{at: at, options: o}, nil
}

// What can be wrong, in words of our own.
var (
	errEnded     = fmt.Errorf("pkcs11: %s ended, or does not respond as it should: %w", programName, keyring.ErrKMSUnavailable)
	errNoProgram = fmt.Errorf("pkcs11: %s cannot be started: install it beside tokenkeep, or in PATH: %w", programName, keyring.ErrKMSUnavailable)
	errClosed    = fmt.Errorf("pkcs11: closed: %w", keyring.ErrKMSUnavailable)
	errPIN       = fmt.Errorf("pkcs11: the token refuses the PIN; it is not tried again until it changes: %w", keyring.ErrKEKRefused)

	// ErrExists says that the token has a key of that name already.
	ErrExists = errors.New("pkcs11: the token has a key of that name already")

	meanings = map[wire.Kind]error{
		wire.NotOpened:   keyring.ErrUnwrap,
		wire.Refused:     fmt.Errorf("pkcs11: the token refuses to use the key: %w", keyring.ErrKEKRefused),
		wire.Unavailable: fmt.Errorf("pkcs11: the token does not work: %w", keyring.ErrKMSUnavailable),
		wire.NoModule:    fmt.Errorf("pkcs11: the module cannot be loaded: %w", keyring.ErrKMSUnavailable),
		wire.NoToken:     fmt.Errorf("pkcs11: no slot has a token of that name: %w", keyring.ErrKMSUnavailable),
		wire.NoKey:       fmt.Errorf("pkcs11: the token has no AES key of that name: %w", keyring.ErrKEKRefused),
		wire.Ambiguous:   fmt.Errorf("pkcs11: several tokens or keys have that name: say which with serial or id: %w", keyring.ErrKEKRefused),
		wire.WrongPIN:    errPIN,
		wire.Exists:      ErrExists,
		wire.Extractable: fmt.Errorf("%w: the key can leave its token; move to one that is sensitive and not extractable", keyring.ErrExcess),
	}
)

// Encrypt encrypts a key.
func (s *service) Encrypt(ctx context.Context, key []byte) ([]byte, error) {
	return s.call(ctx, wire.Encrypt, key)
}

// maxEncrypted is more than what Encrypt returns for 32 bytes.
const maxEncrypted = 512

// Decrypt decrypts a key.
func (s *service) Decrypt(ctx context.Context, encrypted []byte) ([]byte, error) {
	if len(encrypted) > maxEncrypted {
		return nil, keyring.ErrUnwrap
	}
	return s.call(ctx, wire.Decrypt, encrypted)
}

// Probe returns ErrExcess for a key that can leave its token.
func (s *service) Probe(ctx context.Context) error {
	_, err := s.call(ctx, wire.Probe, nil)
	return err
}

// Advise names what to run.
func (s *service) Advise(what keyring.Operation) string {
	switch what {
	case keyring.Create:
		return "run 'tokenkeep key create' with its URI, which makes it in the token"
	case keyring.Rotate:
		return "make another key in the token with 'tokenkeep key create', name it in kek and this one in kek.also, and run 'tokenkeep key rotate-kek'"
	case keyring.Drop:
		return fmt.Sprintf("remove the key from kek.also; 'pkcs11-tool --module %s --login --delete-object --type secrkey --label %s' deletes it in the token, and with it every backup that needs it",
			s.at.target.Module, escape(s.at.target.Object))
	}
	return ""
}

// Close ends the program. Calls fail from then on.
func (s *service) Close() error {
	s.mu.Lock()
	s.closed = true
	p := s.process
	s.mu.Unlock()
	if p != nil {
		p.kill()
		<-p.gone
	}
	return nil
}

// call makes one call of the program, and starts it when it does not run.
func (s *service) call(ctx context.Context, kind wire.Kind, payload []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := s.running()
	if err != nil {
		return nil, err
	}
	reply, err := p.call(ctx, kind, payload)
	if err != nil {
		return nil, err
	}
	if reply.Kind.Failed() {
		s.retire(p, reply.Kind)
	} else {
		s.worked()
	}
	return reply.Payload, meanings[reply.Kind] // nil for OK
}

// running returns a run of the program.
func (s *service) running() (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errClosed
	case s.process != nil:
		return s.process, nil
	}
	pin, err := s.at.pin(s.options.PIN)
	switch {
	case err != nil:
		return nil, err
	case s.wrongPIN && s.pin.Equal(pin):
		return nil, errPIN
	case s.options.Now().Before(s.notBefore):
		return nil, s.why
	}
	target := s.at.target
	target.PIN = []byte(pin.Reveal())
	defer clear(target.PIN)
	payload, err := target.Encode()
	defer clear(payload)
	if err == nil {
		s.process, err = start(s.options.Program, payload, s.watch, func(p *process) { s.ended(p, errEnded) })
	}
	if err != nil {
		s.pause(errNoProgram)
		return nil, errNoProgram
	}
	s.pin, s.wrongPIN = pin, false
	return s.process, nil
}

// retire ends a run that cannot reach the key.
func (s *service) retire(p *process, kind wire.Kind) {
	s.mu.Lock()
	if s.process == p {
		s.wrongPIN = kind == wire.WrongPIN
	}
	s.mu.Unlock()
	s.ended(p, meanings[kind])
	p.kill()
}

// ended notes that a run has ended, unless that is known.
func (s *service) ended(p *process, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == p {
		s.process = nil
		s.pause(why)
	}
}

// worked notes that a run was of use.
func (s *service) worked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = 0
}

// watch calls a function when a call takes too long, unless it is stopped.
func (s *service) watch(f func()) (stop func() bool) {
	return s.options.After(s.options.Envelope.Timeout, f)
}

// pause sets when the next run may start: at once after the first failure, and
// then after pauses that double up to half a minute.
func (s *service) pause(why error) {
	s.failures++
	wait := time.Duration(0)
	if s.failures > 1 {
		wait = min(100*time.Millisecond<<min(s.failures-2, 10), 30*time.Second)
	}
	s.notBefore, s.why = s.options.Now().Add(wait), why
}
