package access

// maxContainer bounds the length of a container path.
const maxContainer = 400

// NormalizeContainer returns a container path in the one form that rules and
// tokens are compared in: ASCII letters in lower case, "/" at both ends. It
// reports whether the text is a path at all: ^/([a-z0-9_-]+/)*$ once lowered,
// and at most 400 characters.
func NormalizeContainer(path string) (string, bool) {
	if len(path) > maxContainer {
		return "", false
	}
	// Only ASCII is lowered: strings.ToLower turns a Kelvin sign into a k.
	lower := []byte(path)
	for i, c := range lower {
		if c >= 'A' && c <= 'Z' {
			lower[i] = c + ('a' - 'A')
		}
	}
	if normal := string(lower); isContainer(normal) {
		return normal, true
	}
	return "", false
}

// isContainer reports whether a path is in normal form. Since every path ends
// with a slash, one path lies below another exactly when it begins with it.
func isContainer(path string) bool {
	if path == "" || len(path) > maxContainer || path[0] != '/' || path[len(path)-1] != '/' {
		return false
	}
	for i := 1; i < len(path); i++ {
		c := path[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-':
		case c == '/' && path[i-1] != '/':
		default:
			return false
		}
	}
	return true
}
