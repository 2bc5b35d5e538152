package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

var (
	errNoRoute = fault.New(fault.NotFound, "no such resource")
	errMethod  = fault.New(fault.MethodNotAllowed, "this resource does not know the method")
	errPath    = fault.New(fault.Invalid, "the path is not valid")
)

// anyMethod stands for every method in a pattern.
const anyMethod = "*"

// node is one segment of the table's paths. The router of the standard library
// is not used, because it cleans paths and answers with redirects.
type node struct {
	literals map[string]*node
	param    *node            // {name}
	rows     map[string]*leaf // by method, for paths that end here
	rest     map[string]*leaf // by method, for paths that go on in any way
}

// leaf is a row with the names of its path values, in order.
type leaf struct {
	row   *Route
	names []string
}

func (n *node) add(row *Route) {
	method, path, ok := strings.Cut(row.Pattern, " ")
	if !ok || method == "" || !strings.HasPrefix(path, "/") || row.Handle == nil {
		panic("httpapi: a row needs a method, a path and a handler: " + row.Pattern)
	}
	l := &leaf{row: row}
	segments := strings.Split(path[1:], "/")
	if path == "/" {
		segments = nil
	}
	for i, s := range segments {
		name, isParam := strings.CutPrefix(s, "{")
		name, closed := strings.CutSuffix(name, "}")
		rest, isRest := strings.CutSuffix(name, "...")
		switch {
		case isParam != closed || s == "" || (isParam && rest == "") || strings.ContainsAny(rest, "{}*%"):
			panic("httpapi: malformed segment in " + row.Pattern)
		case isParam && isRest:
			if i != len(segments)-1 {
				panic("httpapi: something follows the rest in " + row.Pattern)
			}
			l.names = append(l.names, rest)
			n.rest = put(n.rest, method, l)
			return
		case isParam:
			l.names = append(l.names, name)
			if n.param == nil {
				n.param = &node{}
			}
			n = n.param
		default:
			next := n.literals[s]
			if next == nil {
				next = &node{}
				if n.literals == nil {
					n.literals = make(map[string]*node)
				}
				n.literals[s] = next
			}
			n = next
		}
	}
	n.rows = put(n.rows, method, l)
}

func put(rows map[string]*leaf, method string, l *leaf) map[string]*leaf {
	if rows == nil {
		rows = make(map[string]*leaf)
	}
	if rows[method] != nil {
		panic("httpapi: two rows for " + l.row.Pattern)
	}
	rows[method] = l
	return rows
}

// match is what a request's path and method led to.
type match struct {
	row    *Route
	names  []string
	values []string
	allow  string // for a known path without the method
}

func (m match) setValues(r *http.Request) {
	for i, name := range m.names {
		r.SetPathValue(name, m.values[i])
	}
}

// search is one walk down the tree.
type search struct {
	method  string
	values  []string
	found   *leaf
	methods []string // of all the rows whose path matched
	invalid bool     // a segment could not be decoded
}

// match finds the row of a request. Literal segments come before {name}, and
// those before {name...}; where the first has not the method, the next may.
func (n *node) match(r *http.Request) (match, error) {
	s := search{method: r.Method}
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/")
	if !ok {
		return match{}, errNoRoute
	}
	s.walk(n, path, false)
	switch {
	case s.found != nil:
		return match{row: s.found.row, names: s.found.names, values: s.values}, nil
	case len(s.methods) > 0:
		s.methods = append(s.methods, http.MethodOptions)
		slices.Sort(s.methods)
		return match{allow: strings.Join(slices.Compact(s.methods), ", ")}, errMethod
	case s.invalid:
		return match{}, errPath
	}
	return match{}, errNoRoute
}

// walk goes on from n with the undecoded path that follows it, which is
// without its leading slash; atEnd says that nothing follows, not even a slash.
func (s *search) walk(n *node, path string, atEnd bool) bool {
	if path == "" && s.take(n.rows) { // the end, or one trailing slash
		return true
	}
	if !atEnd && path != "" {
		segment, after, more := strings.Cut(path, "/")
		decoded, err := url.PathUnescape(segment)
		switch {
		case err != nil || !utf8.ValidString(decoded) || strings.ContainsRune(decoded, 0):
			s.invalid = true
		default:
			if next := n.literals[decoded]; next != nil && s.walk(next, after, !more) {
				return true
			}
			if n.param != nil && segment != "" {
				s.values = append(s.values, decoded)
				if s.walk(n.param, after, !more) {
					return true
				}
				s.values = s.values[:len(s.values)-1]
			}
		}
	}
	rest := path
	if !atEnd {
		rest = "/" + path
	}
	s.values = append(s.values, rest)
	if s.take(n.rest) {
		return true
	}
	s.values = s.values[:len(s.values)-1]
	return false
}

// take ends the search if one of the rows has the method, and notes the
// methods that there are otherwise.
func (s *search) take(rows map[string]*leaf) bool {
	if s.found = rows[s.method]; s.found == nil && s.method == http.MethodHead {
		s.found = rows[http.MethodGet]
	}
	if s.found == nil {
		s.found = rows[anyMethod]
	}
	for method := range rows {
		s.methods = append(s.methods, method)
		if method == http.MethodGet {
			s.methods = append(s.methods, http.MethodHead)
		}
	}
	return s.found != nil
}
