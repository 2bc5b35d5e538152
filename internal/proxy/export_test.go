package proxy

// Finds tells whether a body of a type that comes in pieces holds an
// expression, for tests.
func Finds(contentType string, pieces ...[]byte) bool {
	kind, params := mediaOf(contentType)
	if kind == binaryMedia {
		return false
	}
	s := newScanner(kind, params)
	for _, p := range pieces {
		if s.found(p) {
			return true
		}
	}
	return false
}

// Fills tells whether a body of a type holds an expression that is evaluated,
// for tests.
func Fills(contentType string, body []byte) (bool, error) {
	kind, params := mediaOf(contentType)
	if kind == binaryMedia {
		return false, nil
	}
	t, err := parse(kind, params, body)
	return t != nil, err
}
