package httpapi

import (
	"cmp"
	"context"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Limits bound what one connection may cost. The zero value has good ones. A
// handler that streams extends its own with http.ResponseController.
type Limits struct {
	ReadHeaderTimeout time.Duration // default 10 s
	ReadTimeout       time.Duration // headers and body; default 60 s
	WriteTimeout      time.Duration // from the headers to the end of the answer; default 90 s
	IdleTimeout       time.Duration // between requests; default 2 min
	MaxHeaderBytes    int           // default 64 KiB
}

// NewServer makes a server for h that logs nothing but h's own records.
func NewServer(h *Handler, l Limits) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: cmp.Or(l.ReadHeaderTimeout, 10*time.Second),
		ReadTimeout:       cmp.Or(l.ReadTimeout, 60*time.Second),
		WriteTimeout:      cmp.Or(l.WriteTimeout, 90*time.Second),
		IdleTimeout:       cmp.Or(l.IdleTimeout, 2*time.Minute),
		MaxHeaderBytes:    cmp.Or(l.MaxHeaderBytes, 64<<10),
		ErrorLog:          h.ErrorLog(),
		// "OPTIONS *" gets a trace id like everything else.
		DisableGeneralOptionsHandler: true,
	}
}

// connectionErrors says in our words what net/http says in words that may
// hold addresses and headers. The first prefix that fits counts.
var connectionErrors = []struct {
	prefix  string
	level   slog.Level
	message string
}{
	{"http: panic serving", LevelAlarm, "a connection ended in a panic"},
	{"http: Accept error", slog.LevelError, "a connection could not be accepted"},
	{"http: TLS handshake error", slog.LevelInfo, "a TLS handshake failed"},
	{"", slog.LevelInfo, "a connection failed"},
}

// ErrorLog makes the logger of an http.Server. It counts what it is told and
// logs a constant sentence instead.
func (h *Handler) ErrorLog() *log.Logger { return log.New(connectionLog{h}, "", 0) }

type connectionLog struct{ handler *Handler }

func (c connectionLog) Write(b []byte) (int, error) {
	c.handler.metrics.connections.Inc()
	for _, e := range connectionErrors {
		if strings.HasPrefix(string(b), e.prefix) {
			c.handler.log.LogAttrs(context.Background(), e.level, e.message)
			break
		}
	}
	return len(b), nil
}
