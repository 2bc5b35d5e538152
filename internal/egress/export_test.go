package egress

import "net"

// MaxPools is exported for tests.
const MaxPools = maxPools

// SetInterfaces stands in for the addresses of the machine.
func (e *Egress) SetInterfaces(f func() ([]net.Addr, error)) { e.interfaces = f }
