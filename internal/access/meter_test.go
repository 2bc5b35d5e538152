package access_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
)

// meter writes down what it is charged with, and refuses when it is full.
type meter struct {
	charged []string
	full    error
}

func (m *meter) Tokens(n int) error {
	m.charged = append(m.charged, fmt.Sprint("tokens ", n))
	return m.full
}

func (m *meter) Memory(tenant string, n int64) error {
	m.charged = append(m.charged, fmt.Sprint(tenant, " ", n))
	return m.full
}

func TestAPartOfARequestGivesItsMemoryBack(t *testing.T) {
	m := &meter{}
	c := access.NewSystem("tenant").WithOrigin(access.Origin{Meter: m})
	part, release := c.Holding()
	if err := errors.Join(part.ChargeTokens(1), part.ChargeMemory(5), part.ChargeMemory(-2)); err != nil {
		t.Errorf("charges = %v", err)
	}
	m.full = errors.New("full")
	if err := part.ChargeMemory(9); !errors.Is(err, m.full) {
		t.Errorf("beyond the limit = %v, want what the meter says", err)
	}
	release()
	release()
	if got, want := fmt.Sprint(m.charged), "[tokens 1 tenant 5 tenant -2 tenant 9 tenant -3]"; got != want {
		t.Errorf("charged %s, want %s", got, want)
	}
	free, release := access.NewSystem("tenant").Holding()
	if err := free.ChargeMemory(1); err != nil {
		t.Errorf("without a meter = %v", err)
	}
	release()
}

func TestWhatACallerUsesIsChargedToItsRequest(t *testing.T) {
	m := &meter{}
	c := access.NewSystem("tenant").WithOrigin(access.Origin{Meter: m})
	charge := func() error {
		return errors.Join(c.ChargeTokens(3), c.ChargeMemory(5), c.Origin().ChargeMemory("other", 7))
	}
	if err := charge(); err != nil {
		t.Errorf("charges = %v", err)
	}
	if got, want := fmt.Sprint(m.charged), "[tokens 3 tenant 5 other 7]"; got != want {
		t.Errorf("charged %s, want %s", got, want)
	}
	m.full = errors.New("full")
	for name, charge := range map[string]func() error{
		"tokens": func() error { return c.ChargeTokens(1) },
		"memory": func() error { return c.ChargeMemory(1) },
	} {
		if err := charge(); !errors.Is(err, m.full) {
			t.Errorf("%s beyond the limit = %v, want what the meter says", name, err)
		}
	}
	// Work that no request waits for has no meter.
	c = access.NewSystem("tenant")
	if err := charge(); err != nil {
		t.Errorf("charges without a meter = %v", err)
	}
}
