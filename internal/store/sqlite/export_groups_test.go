package sqlite

import "strings"

// ReadCost returns how many statements an idle store has run and rows it has
// read so far on the connections of views.
func (s *Store) ReadCost() (n int64) {
	all, done := s.connections()
	defer done()
	for name, c := range all {
		if strings.HasPrefix(name, "reader") || strings.HasPrefix(name, "viewer") {
			n += c.cost
		}
	}
	return n
}
