package proxy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// TestRealCodeShapesWhatPasses runs transforms as tenants write them, on the
// runtime that they get.
func TestRealCodeShapesWhatPasses(t *testing.T) {
	storetest.Long(t)
	w := start(t, map[string]string{"sandbox.level": "unsafe_none", "sandbox.runtime": runtimetest.Find(t).Folder}, nil)
	id := w.token(t, card)
	plain := w.proxy
	app := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:create", "token:use"}})
	for name, c := range map[string]struct {
		request, response string
		media, body       string
		status            int
		want              string   // in the answer
		sent              []string // in the last request to the destination
	}{
		"a secret and the whole call": {
			request: `module.exports = async ({args, configuration}) => ({body: {...args.body, call: args.method + args.path + args.query},
				headers: {...args.headers, authorization: configuration.secret, 'x-type': args.headers['CONTENT-type']}})`,
			media: "application/json", body: `{"n":"{{` + id + `}}"}`, status: 200, want: "ok",
			sent: []string{"\r\nAuthorization: s3cret\r\n", "\r\nX-Type: application/json\r\n", `{"n":"4242424242424242","call":"POST/a?b=1"}`},
		},
		"an answer that is tokenized": {
			response: `module.exports = async function (req) { const t = await req.bt.tokens.create({type: 'token', data: req.args.body}); return {raw: {body: {status: req.args.status, length: t.id.length}, headers: {}}} }`,
			media:    "text/plain", body: "x", status: 200, want: `{"status":200,"length":36}`, sent: []string{"\r\n\r\nx"},
		},
		"an answer of its own": {
			request: `const { CustomHttpResponseError } = require('tokenkeep/errors'); module.exports = async () => { throw new CustomHttpResponseError({status: 207, headers: {'X-A': 'b'}, body: {a: 1}}) }`,
			media:   "text/plain", body: "x", status: 207, want: `{"a":1}`,
		},
		"a response with the last status": {
			request: `module.exports = async () => { throw {name: 'CustomHttpResponseError', status: 599, body: {a: 1}} }`,
			media:   "text/plain", body: "x", status: 599, want: `{"a":1}`,
		},
		"a response with a status below 200": {
			request: `const { CustomHttpResponseError } = require('tokenkeep/errors'); module.exports = async () => { throw new CustomHttpResponseError({status: 199}) }`,
			media:   "text/plain", body: "x", status: 422, want: `"detail":"the status of a CustomHttpResponseError must be an integer from 200 to 599"`,
		},
		"an error with a value in it": {
			request: `module.exports = async (req) => { throw new Error('bad ' + req.args.body) }`,
			media:   "text/plain", body: "{{" + id + "}}", status: 422, want: `"detail":"bad [protected]"`,
		},
		"an error of a class": {
			response: `const { AuthenticationError } = require('@basis-theory/basis-theory-reactor-formulas-sdk-js'); module.exports = async () => { throw new AuthenticationError('nope') }`,
			media:    "text/plain", body: "x", status: 401, want: `{"proxy_error":{"errors":{"error":["nope"]},"title":"Unauthorized proxy request"`, sent: []string{"\r\n\r\nx"},
		},
		"a call of another proxy": {
			request: `module.exports = async (req) => ({body: await req.bt.proxy.post({headers: {'SVC-PROXY-KEY': req.configuration.proxy}, body: {a: 1}})})`,
			media:   "text/plain", body: "x", status: 200, want: "ok", sent: []string{"\r\n\r\nok"},
		},
		"a call of itself, without end": {
			request: `module.exports = async (req) => ({body: await req.bt.proxy.post({headers: {'SVC-PROXY-KEY': req.args.headers['X-Self'], 'X-Self': req.args.headers['X-Self']}, body: {a: 1}})})`,
			media:   "text/plain", body: "x", status: 422, want: "proxy_error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := json.Marshal(map[string]any{
				"name": "p", "destination_url": w.to.URL + "/base", "application": map[string]string{"id": app.ID},
				"configuration":     map[string]string{"secret": "s3cret", "proxy": plain.Key},
				"request_transform": map[string]string{"code": c.request}, "response_transform": map[string]string{"code": c.response},
			})
			if err != nil {
				t.Fatal(err)
			}
			w.proxy = w.define(t, string(body))
			got := w.send(t, "POST", "/a?b=1", c.media, c.body, "Authorization", "theirs", "X-Self", w.proxy.Key)
			if got.Status != c.status || !strings.Contains(got.Body, c.want) {
				t.Errorf("the answer is %s, want %d with %s", got, c.status, c.want)
			}
			seen := w.to.take()
			if len(c.sent) == 0 && len(seen) != 0 {
				t.Errorf("the destination got %q", seen[0].raw)
			}
			for _, part := range c.sent {
				if len(seen) == 0 || !strings.Contains(seen[len(seen)-1].raw, part) {
					t.Errorf("the destination got %v, want %q in it", seen, part)
				}
			}
		})
	}
}
