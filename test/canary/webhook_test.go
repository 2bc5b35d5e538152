package canary_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// messages are what a webhook got.
type messages struct {
	mu    sync.Mutex // guards what follows
	text  strings.Builder
	count int
}

func (m *messages) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	for name := range r.Header {
		m.text.WriteString(name + ": " + r.Header.Get(name) + "\n")
	}
	m.text.Write(body)
}

func (m *messages) read() (text string, count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String(), m.count
}

// plantWebhook has all events sent to a receiver, whose address is planted too.
func (g *garden) plantWebhook() *messages {
	g.t.Helper()
	m := &messages{}
	receiver := httptest.NewServer(m)
	g.t.Cleanup(receiver.Close)
	g.Call(g.t, "POST", "/webhooks", g.management, `{"name":"w","url":"`+receiver.URL+"/"+g.text("webhook url")+`","events":["*"]}`).Into(g.t, 201, new(api.Webhook))
	return m
}

// readEvents lists all events, and waits until the webhook has some of them.
func (g *garden) readEvents(m *messages) {
	g.t.Helper()
	waittest.Until(g.t, "a hundred messages to the webhook", func() bool { _, n := m.read(); return n >= 100 })
	for start := ""; ; {
		var list api.EventList
		g.want(200, "GET", "/events?size=100&start="+start, g.management, "").Into(g.t, 200, &list)
		if start = list.Pagination.Next; !list.Pagination.More {
			return
		}
	}
}
