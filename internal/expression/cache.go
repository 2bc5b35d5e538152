package expression

import (
	"container/list"
	"sync"
)

// Cache keeps parsed templates by their text, the ones used last. It is for
// the expressions that are stored with tokens, never for what requests carry:
// that may hold data, and there is no type here that would put it in. A nil
// Cache keeps nothing.
type Cache struct {
	maxEntries, maxBytes int

	mu     sync.Mutex // guards what follows
	bytes  int
	recent *list.List // of *cached, the one used last in front
	byText map[string]*list.Element
}

type cached struct {
	text     string
	template *Template
}

// parsedFactor is about how much larger a parsed template is than its text.
const parsedFactor = 8

// NewCache makes a cache of at most so many templates, which together take
// about so many bytes.
func NewCache(maxEntries, maxBytes int) *Cache {
	return &Cache{maxEntries: maxEntries, maxBytes: maxBytes, recent: list.New(), byText: make(map[string]*list.Element)}
}

// Parse is ParseWithin, with the template from the cache where it is known. It
// costs the request the same: whether a request is refused must not depend on
// what others did before. What does not parse is not kept.
func (c *Cache) Parse(b *Budget, text string) (*Template, error) {
	if c == nil {
		return ParseWithin(b, text)
	}
	if t := c.known(text); t != nil {
		if err := b.parsing(text); err != nil {
			return nil, err
		}
		return t, b.parsed(t.open().operations)
	}
	t, err := ParseWithin(b, text)
	if err != nil {
		return nil, err
	}
	c.keep(text, t)
	return t, nil
}

func (c *Cache) known(text string) *Template {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byText[text]
	if !ok {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*cached).template
}

func (c *Cache) keep(text string, t *Template) {
	if parsedFactor*len(text) > c.maxBytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byText[text]; ok {
		return // another call was first
	}
	c.byText[text] = c.recent.PushFront(&cached{text, t})
	c.bytes += parsedFactor * len(text)
	for c.recent.Len() > c.maxEntries || c.bytes > c.maxBytes {
		oldest := c.recent.Back()
		gone := c.recent.Remove(oldest).(*cached)
		delete(c.byText, gone.text)
		c.bytes -= parsedFactor * len(gone.text)
	}
}

// Len counts the templates that are kept.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.Len()
}
