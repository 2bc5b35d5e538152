package admission_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/admission"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/limit"
)

const (
	mib  = 1 << 20
	size = 64 * mib
)

func newPool() (*admission.Pool, *limit.Recorder) {
	r := limit.NewRecorder(time.Now, prometheus.NewRegistry())
	return admission.NewPool(size, r), r
}

func codeOf(err error) string { return fault.Of(err).Code() }

func TestOneTenantGetsHalfAndOthersTheRest(t *testing.T) {
	p, recorder := newPool()
	var attacker []*admission.Hold
	for {
		h := p.Open()
		if err := h.Grow("attacker", 4*mib); err != nil {
			if !errors.Is(err, fault.Unavailable) || codeOf(err) != "tenant_request_memory" || fault.Of(err).Wait() <= 0 {
				t.Errorf("the refusal of the attacker = %v (%s), want Unavailable, tenant_request_memory, with a time to wait", err, codeOf(err))
			}
			break
		}
		attacker = append(attacker, h)
	}
	if p.Used() != size/2 {
		t.Errorf("one tenant holds %d bytes, want %d", p.Used(), size/2)
	}
	other := p.Open()
	if err := other.Grow("shop", 20*mib); err != nil {
		t.Errorf("Grow of another tenant = %v, want room", err)
	}
	if got := recorder.LastHour(); len(got) != 1 || got[0].Name != limit.RequestMemory || got[0].Count != 1 {
		t.Errorf("the limits reached are %v, want request_memory once", got)
	}
	for _, h := range append(attacker, other) {
		h.Close()
		h.Close() // gives nothing back twice
	}
	if p.Used() != 0 {
		t.Errorf("after the last request %d bytes are held, want 0", p.Used())
	}
}

func TestSmallRequestsPassWhileLargeOnesAreRefused(t *testing.T) {
	p, _ := newPool()
	for _, tenant := range []string{"a", "b"} {
		for range 7 {
			if err := p.Open().Grow(tenant, 4*mib); err != nil {
				t.Fatalf("Grow(%s) = %v", tenant, err)
			}
		}
	}
	if err := p.Open().Grow("c", mib); codeOf(err) != "request_memory" {
		t.Errorf("Grow of a large request into the reserve = %v, want request_memory", err)
	}
	small := p.Open()
	if err := small.Grow("c", admission.Small); err != nil {
		t.Errorf("Grow of a small request = %v, want room", err)
	}
	if err := small.Grow("c", 1); codeOf(err) != "request_memory" {
		t.Errorf("Grow of a request that is no longer small = %v, want request_memory", err)
	}
	for range 8 * mib / admission.Small {
		if err := p.Open().Grow("c", admission.Small); err != nil && codeOf(err) != "request_memory" {
			t.Errorf("Grow of a small request = %v", err)
		}
	}
	if p.Used() != size || p.Peak() != size {
		t.Errorf("used %d, at most %d, want %d", p.Used(), p.Peak(), size)
	}
}

func TestARequestThatNeverFitsIsToldSo(t *testing.T) {
	p, _ := newPool()
	h := p.Open()
	if err := h.Grow("a", size/2+1); !errors.Is(err, fault.TooLarge) || codeOf(err) != "request_too_heavy" {
		t.Errorf("Grow of more than half = %v, want TooLarge, request_too_heavy", err)
	}
	if p.Used() != 0 {
		t.Errorf("a refusal took %d bytes", p.Used())
	}
}

func TestAHoldGrowsAndShrinks(t *testing.T) {
	p, _ := newPool()
	h := p.Open()
	for _, step := range []struct {
		tenant  string
		n, want int64
	}{{"", 1000, 1000}, {"a", 500, 1500}, {"a", -200, 1300}, {"", 7, 1307}, {"a", -5000, 0}, {"a", 10, 10}} {
		if err := h.Grow(step.tenant, step.n); err != nil || p.Used() != step.want {
			t.Errorf("Grow(%q, %d) = %v and %d are held, want %d", step.tenant, step.n, err, p.Used(), step.want)
		}
	}
	h.Close()
	if err := h.Grow("a", 10); err != nil || p.Used() != 0 {
		t.Errorf("Grow after Close = %v and %d are held, want nil and 0", err, p.Used())
	}
	var none *admission.Pool
	if err := none.Open().Grow("a", 1<<60); err != nil {
		t.Errorf("Grow without a pool = %v, want nil", err)
	}
}

func TestManyAtOnceNeverHoldMoreThanThePool(t *testing.T) {
	p, _ := newPool()
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for range 50 {
				h := p.Open()
				for range 5 {
					_ = h.Grow(string(rune('a'+i%7)), 3*mib)
				}
				h.Close()
			}
		})
	}
	all.Wait()
	if p.Used() != 0 || p.Peak() > size {
		t.Errorf("used %d, at most %d, want 0 and no more than %d", p.Used(), p.Peak(), size)
	}
}
