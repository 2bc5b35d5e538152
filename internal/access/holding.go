package access

// holding counts the memory that goes through a Meter.
type holding struct {
	Meter
	held map[string]int64 // by tenant
}

func (h *holding) Memory(tenant string, n int64) error {
	err := h.Meter.Memory(tenant, n)
	if err == nil {
		h.held[tenant] += n
	}
	return err
}

// Holding returns the caller for one part of a long request: release gives back
// the memory that was charged to it since. Only one goroutine may use it.
func (c Caller) Holding() (_ Caller, release func()) {
	if c.origin.Meter == nil {
		return c, func() {}
	}
	inner := c.origin.Meter
	h := &holding{Meter: inner, held: make(map[string]int64)}
	c.origin.Meter = h
	return c, func() {
		for tenant, n := range h.held {
			_ = inner.Memory(tenant, -n) // giving back never fails
		}
		clear(h.held)
	}
}
