package proxy_test

import (
	"testing"
)

func TestABodyIsSentWithTheValuesOfItsTokens(t *testing.T) {
	w := start(t, nil, nil)
	card := w.token(t, "4242424242424242")
	got := w.send(t, "POST", "/charge?a=1", "application/json", `{ "n": "{{`+card+`}}" , "x":1.50}`)
	if got.Status != 200 || got.Body != "ok" || got.Header.Get("SVC-PROXY-DESTINATION-STATUS") != "200" {
		t.Fatalf("POST /proxy/charge = %s %v", got, got.Header)
	}
	r := w.one(t)
	t.Log(r.raw, got.Header)
	if r.target != "/base/charge?a=1" || r.body != `{ "n": "4242424242424242" , "x":1.50}` {
		t.Errorf("the destination got %q %q", r.target, r.body)
	}
}
