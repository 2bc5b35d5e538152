package httpapi

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// TakesGzip reports whether the client of a request takes a compressed response.
func TakesGzip(r *http.Request) bool {
	for _, coding := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		refused := weight != "" && strings.Trim(weight, "qQ=0.") == ""
		if strings.EqualFold(name, "gzip") && !refused {
			return true
		}
	}
	return false
}

// Static is a body that can be sent compressed or not.
type Static struct{ plain, zipped []byte }

// NewStatic returns a body with its compressed form.
func NewStatic(plain []byte) (Static, error) {
	var zipped bytes.Buffer
	z, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(plain)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return Static{}, fmt.Errorf("httpapi: compress: %w", err)
	}
	return Static{plain: plain, zipped: zipped.Bytes()}, nil
}

// Write sends the body, compressed where the client takes that.
func (s Static) Write(w http.ResponseWriter, r *http.Request) {
	h, content := w.Header(), s.plain
	h.Add("Vary", "Accept-Encoding")
	if TakesGzip(r) {
		content = s.zipped
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content) // fails only when the client has gone
}
