package contract_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const examples = "../../docs/reactors"

// destination is the other side of all examples.
func destination(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Amount int
			Card   struct {
				Number, CVC string
				Month       int `json:"exp_month"`
			}
		}
		w.Header().Set("Content-Type", "application/json")
		switch err := json.NewDecoder(r.Body).Decode(&in); {
		case err != nil || in.Card.Number != card || in.Card.CVC != "123" || in.Card.Month != 12 || r.Header.Get("Idempotency-Key") == "":
			w.WriteHeader(http.StatusTeapot)
		case r.Header.Get("Authorization") != "Bearer sk_test_1":
			w.WriteHeader(http.StatusUnauthorized)
		case in.Amount == 666:
			w.WriteHeader(http.StatusPaymentRequired)
			_, _ = io.WriteString(w, `{"decline_code":"do_not_honor"}`)
		default:
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"id":"ch_%s"}`, r.Header.Get("Idempotency-Key"))
		}
	})
	mux.HandleFunc("POST /transfers", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/xml")
		state := "refused"
		if strings.Contains(string(body), `<Transfer version="1"><Routing>021000021</Routing><Account>000123456789</Account><Amount>12.50</Amount><Reference>a &lt; b &amp; c</Reference></Transfer>`) {
			state = "accepted"
		}
		_, _ = io.WriteString(w, `<?xml version="1.0"?><Receipt id="007"><State>`+state+`</State></Receipt>`)
	})
	mux.HandleFunc("POST /customers", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		digest := sha256.Sum256(body)
		mac := hmac.New(sha256.New, []byte("shared"))
		_, _ = io.WriteString(mac, "POST\n/customers\n"+r.Header.Get("X-Timestamp")+"\n"+hex.EncodeToString(digest[:]))
		want := `HMAC-SHA256 keyId="k1", signature="` + base64.StdEncoding.EncodeToString(mac.Sum(nil)) + `"`
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"known":%t,"signed":%t}`, string(body) == `{"customer":"Ada Lovelace"}`, r.Header.Get("Authorization") == want)
	})
	mux.HandleFunc("GET /bins/{bin}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.PathValue("bin") != "42424242" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, `{"scheme":"visa","bank":"Bank of Tests","country":"GB","account_range":"secret of theirs"}`)
	})
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "open sesame" || r.URL.Query().Get("from") != "2030-01-01" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "text/csv")
		_, _ = io.WriteString(w, "customer,name,number,month,year\n1,\"Hopper, Grace\",4242424242424242,12,2040\n2,Alan Turing,5555555555554444,1,2041\n\n")
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// TestTheReactorsOfTheDocs runs the code that docs/reactors.md shows, each
// against a service as it is written for.
func TestTheReactorsOfTheDocs(t *testing.T) {
	storetest.Long(t)
	w := newCoder(t, nil)
	to := destination(t).URL
	w.token(`{"id":"card","type":"card","data":{"number":"` + card + `","expiration_month":12,"expiration_year":2040,"cvc":"123"}}`)
	w.token(`{"id":"account","type":"bank","data":{"routing_number":"021000021","account_number":"000123456789"}}`)
	w.token(`{"id":"name","type":"token","data":"Ada Lovelace"}`)
	type call struct {
		args   string
		status int
		want   string
	}
	threw := func(status int, detail, errors string) string {
		return fmt.Sprintf(`{"title":%q,"status":%d,"detail":%q,"errors":%s}`, http.StatusText(status), status, detail, errors)
	}
	tests := map[string]struct {
		configuration map[string]string
		calls         []call
	}{
		"charge.js": {map[string]string{"URL": to, "SECRET_KEY": "sk_test_1"}, []call{
			{`{"card":"{{card}}","amount":1000,"currency":"USD","order":"7"}`, 200, `{"raw":{"charge":"ch_7","last4":"4242"}}`},
			{`{"card":"{{card}}","amount":666,"currency":"USD","order":"8"}`, 402, threw(402, "Invalid Payment Method", `{"error":["do_not_honor"]}`)},
			{`{"card":"{{card}}","amount":0.5,"currency":"USD","order":"9"}`, 400, threw(400, "Bad Request", `{"amount":["must be a whole number of cents"]}`)},
			{`{"card":{"number":"4242"},"amount":1,"currency":"USD","order":"9"}`, 422, problem(422, "the payment service answered with 418")},
		}},
		"xml.js": {map[string]string{"URL": to + "/transfers"}, []call{
			{`{"account":"{{account}}","amount":"12.50","reference":"a < b & c"}`, 200, `{"raw":{"receipt":"007","state":"accepted"}}`},
		}},
		"signed.js": {map[string]string{"URL": to, "KEY_ID": "k1", "SECRET": "shared"}, []call{
			{`{"customer":"{{name}}","path":"/customers"}`, 200, `{"raw":{"known":true,"signed":true}}`},
		}},
		"bin.js": {map[string]string{"URL": to + "/bins"}, []call{
			{`{"number":"{{ card | json: '$.number' }}"}`, 200, `{"raw":{"brand":"visa","issuer":"Bank of Tests","country":"GB"}}`},
			{`{"number":"378282246310005"}`, 404, `{"issuer":"unknown"}`},
		}},
		"bulk.js": {map[string]string{"URL": to + "/export", "PASSWORD": "open sesame"}, []call{
			{`{"from":"2030-01-01"}`, 200, `{"raw":{"customers":2},"tokens":[{"name":"<any>","card":"<any>"},{"name":"<any>","card":"<any>"}]}`},
			{`{"from":"1970-01-01"}`, 422, problem(422, "Request failed with status code 403")},
		}},
	}
	page, err := os.ReadFile("../../docs/reactors.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(examples + "/*.js")
	if err != nil || len(files) != len(tests) {
		t.Fatalf("%d examples, %v; %d are tested", len(files), err, len(tests))
	}
	for _, file := range files {
		name := filepath.Base(file)
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), "(reactors/"+name+")") {
			t.Errorf("docs/reactors.md does not lead to %s", name)
		}
		test := tests[name]
		made := w.server.Call(t, "POST", "/reactors", w.manager.Key, fmt.Sprintf(`{"name":%q,"code":%s,"configuration":%s}`, name, jsonText(string(code)), jsonText(test.configuration)))
		if made.Status != 201 {
			t.Errorf("%s: POST /reactors = %s", name, made)
			continue
		}
		id := fmt.Sprint(member(decode(t, made.Body), "id"))
		for _, c := range test.calls {
			got := w.react(id, "user", `{"args":`+c.args+`}`)
			w.wants(name+" with "+c.args, got, c.status, c.want)
			if strings.Contains(got.Body, card) || strings.Contains(got.Body, "Turing") {
				t.Errorf("%s shows what it was given: %s", name, got)
			}
		}
	}
	// Of the answer of a list the tokens are real ones.
	if got := w.server.Call(t, "GET", "/tokens?metadata.customer=2", w.names["all_key"], ""); !strings.Contains(got.Body, `"5555555555554444"`) {
		t.Errorf("the card of customer 2 = %s", got)
	}
}
