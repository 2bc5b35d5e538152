package httpapi

import (
	"net/http"
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
