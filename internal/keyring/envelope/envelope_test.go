package envelope_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
)

// service keeps keys as they are, and fails as often as it is told to.
type service struct {
	mu       sync.Mutex // guards what follows
	failures []error    // of the next calls
	calls    int
	inFlight int
	most     int
	hold     chan struct{} // nil, or what calls wait for
	entered  chan struct{}
}

func (s *service) do(ctx context.Context, in []byte) ([]byte, error) {
	s.mu.Lock()
	s.calls++
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	var err error
	if len(s.failures) > 0 {
		err, s.failures = s.failures[0], s.failures[1:]
	}
	hold := s.hold
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inFlight--
		s.mu.Unlock()
	}()
	if hold != nil {
		s.entered <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return bytes.Clone(in), err
}

func (s *service) Encrypt(ctx context.Context, key []byte) ([]byte, error) { return s.do(ctx, key) }
func (s *service) Decrypt(ctx context.Context, in []byte) ([]byte, error)  { return s.do(ctx, in) }

func TestAServiceThatIsNotAvailableIsTriedAgain(t *testing.T) {
	other := errors.New("what the service said: 4242424242424242")
	for name, tc := range map[string]struct {
		failures []error
		want     error
		calls    int
	}{
		"at once":             {nil, nil, 1},
		"after two failures":  {[]error{keyring.ErrKMSUnavailable, other}, nil, 3},
		"never":               {[]error{other, other, other, other, other, other}, keyring.ErrKMSUnavailable, 5},
		"a refusal is final":  {[]error{keyring.ErrKEKRefused}, keyring.ErrKEKRefused, 1},
		"damage is final too": {[]error{keyring.ErrUnwrap}, keyring.ErrUnwrap, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{failures: tc.failures}
			var waits []time.Duration
			k := envelope.New("id", s, envelope.Options{Wait: func(_ context.Context, d time.Duration) error {
				waits = append(waits, d)
				return nil
			}})
			_, _, err := k.Wrap(t.Context(), []byte("key"), nil)
			if !errors.Is(err, tc.want) || s.calls != tc.calls {
				t.Errorf("Wrap = %v after %d calls, want %v after %d", err, s.calls, tc.want, tc.calls)
			}
			if err != nil && bytes.Contains([]byte(err.Error()), []byte("4242")) {
				t.Errorf("the error repeats what the service said: %v", err)
			}
			for i, d := range waits {
				if most := 100 * time.Millisecond << i; d < 0 || d >= most {
					t.Errorf("wait %d is %s, want less than %s", i, d, most)
				}
			}
		})
	}
}

func TestAServiceThatIsDownIsLeftAloneForASecond(t *testing.T) {
	clock := clocktest.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s := &service{failures: []error{keyring.ErrKMSUnavailable}}
	k := envelope.New("id", s, envelope.Options{Attempts: 1, Now: clock.Now})
	for _, step := range []struct {
		wait  time.Duration
		calls int
		want  error
	}{{0, 1, keyring.ErrKMSUnavailable}, {999 * time.Millisecond, 1, keyring.ErrKMSUnavailable}, {time.Millisecond, 2, nil}} {
		clock.Advance(step.wait)
		if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); !errors.Is(err, step.want) || s.calls != step.calls {
			t.Errorf("%s later: Wrap = %v after %d calls, want %v after %d", step.wait, err, s.calls, step.want, step.calls)
		}
	}
}

func TestCallsInFlightAreBounded(t *testing.T) {
	s := &service{hold: make(chan struct{}), entered: make(chan struct{}, 10)}
	k := envelope.New("id", s, envelope.Options{Concurrent: 2, Timeout: time.Hour})
	var done sync.WaitGroup
	for range 6 {
		done.Go(func() {
			if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); err != nil {
				t.Errorf("Wrap = %v", err)
			}
		})
	}
	<-s.entered
	<-s.entered
	// A caller who leaves does not wait for a slot.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := k.Wrap(ctx, []byte("key"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Wrap of a caller who left = %v", err)
	}
	close(s.hold)
	done.Wait()
	if s.most != 2 {
		t.Errorf("%d calls were in flight, want 2", s.most)
	}
}

func TestWrappedBytesAreBoundToTheKey(t *testing.T) {
	s := &service{}
	one, two := envelope.New("one", s, envelope.Options{}), envelope.New("two", s, envelope.Options{})
	wrapped, _, err := one.Wrap(t.Context(), []byte("key"), []byte("tenant"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.Unwrap(t.Context(), "two", wrapped, []byte("tenant")); !errors.Is(err, keyring.ErrUnwrap) {
		t.Errorf("Unwrap as another key = %v, want ErrUnwrap", err)
	}
	if _, err := two.Unwrap(t.Context(), "one", wrapped, []byte("tenant")); !errors.Is(err, keyring.ErrNoKEK) {
		t.Errorf("Unwrap of another id = %v, want ErrNoKEK", err)
	}
	if _, _, err := one.Wrap(t.Context(), make([]byte, 5<<10), nil); err == nil {
		t.Error("Wrap of 5 KiB succeeds")
	}
}
