package sqlite

import "strings"

// Changes returns how many statements that read nothing an idle store has run so
// far on the connection of the writer.
func (s *Store) Changes() int64 {
	all, done := s.connections()
	defer done()
	return all["writer"].changes
}

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
