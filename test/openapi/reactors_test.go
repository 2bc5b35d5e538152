package openapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// needCode are the rows that have no success where no code runs;
// TestReactorsAnswerAsDescribed has one.
var needCode = []string{"POST /reactors/try", "POST /reactors/{id}/react", "GET /reactors/{id}/results/{request_id}"}

// walkReactors makes a reactor, changes it in every way, runs it in every way
// as far as the server does, and removes it.
func walkReactors(ctx context.Context, t *testing.T, with func(key string) *client.Client, keys server.DevKeys, runs bool) {
	t.Helper()
	manager, private := with(keys.ManagementKey), with(keys.PrivateKey)
	app, err := private.Applications.Own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	in := api.WriteReactor{Name: "Wandlung", Code: "module.exports = async () => {}", Configuration: map[string]string{"A": "a"}, Application: &api.ApplicationRef{ID: app.ID}}
	made, err := manager.Reactors.Create(ctx, in)
	if err != nil || made.Application == nil || made.Application.ID != app.ID {
		t.Fatalf("Reactors.Create = %+v, %v", made.Application, err)
	}
	if got, err := manager.Reactors.Replace(ctx, made.ID, made.Write()); err != nil || got.Application == nil || *got.Application != *made.Application || got.Code != made.Code {
		t.Errorf("Reactors.Replace with what was read = %+v, %v", got, err)
	}
	in.Application, in.ApplicationID = nil, app.ID
	if got, err := manager.Reactors.Replace(ctx, made.ID, in); err != nil || got.Application == nil || got.Application.ID != app.ID {
		t.Errorf("Reactors.Replace with the id of an application = %+v, %v", got.Application, err)
	}
	if err := manager.Reactors.Patch(ctx, made.ID, json.RawMessage(`{"configuration":{"A":null,"B":"b"},"application":null}`)); err != nil {
		t.Errorf("Reactors.Patch: %v", err)
	}
	if got, err := manager.Reactors.Get(ctx, made.ID); err != nil || len(got.Configuration) != 1 || got.Configuration["B"] != "b" || got.Application != nil {
		t.Errorf("Reactors.Get = %+v, %v", got.Configuration, err)
	}
	in = api.WriteReactor{Name: "Change", Configuration: map[string]string{}, Code: `
		const { InvalidPaymentMethodError } = require('tokenkeep/errors');
		module.exports = async ({ args }) => {
			console.log('hello');
			if (args.declined) throw new InvalidPaymentMethodError('declined');
			if (args.fail) throw new Error('failed');
			return { raw: args, tokenize: ['x', null] };
		}`}
	if got, err := manager.Reactors.Replace(ctx, made.ID, in); err != nil || got.Name != "Change" || got.ModifiedAt.IsZero() {
		t.Errorf("Reactors.Replace = %s, %v", got.Name, err)
	}
	found := 0
	for r, err := range manager.Reactors.List(ctx, client.ReactorFilter{IDs: []string{made.ID}, Name: "CHANGE"}) {
		if err != nil || r.ID != made.ID {
			t.Errorf("Reactors.List = %s, %v", r.ID, err)
		}
		found++
	}
	if found != 1 {
		t.Errorf("Reactors.List finds %d, want 1", found)
	}
	if list, err := manager.Reactors.Versions(ctx, made.ID); err != nil || len(list) != 2 || list[0].Code["code"] != in.Code {
		t.Errorf("Reactors.Versions = %+v, %v, want two", list, err)
	}
	if got, err := manager.Reactors.Restore(ctx, made.ID, "1"); err != nil || got.Code == in.Code {
		t.Errorf("Reactors.Restore = %+v, %v, want the first code", got.Code, err)
	}
	if _, err := manager.Reactors.Replace(ctx, made.ID, in); err != nil {
		t.Errorf("Reactors.Replace: %v", err)
	}
	trial, err := manager.Reactors.Try(ctx, api.TryReactor{Code: "module.exports = async ({ args }) => { console.log('x'); return { raw: args } }", Args: map[string]int{"a": 1}})
	if runs && (err != nil || string(trial.Raw) != `{"a":1}` || len(trial.Console) != 1) {
		t.Errorf("Reactors.Try = %+v, %v", trial, err)
	}
	walkRuns(ctx, t, manager, private, made.ID, runs)
	if err := manager.Reactors.Delete(ctx, made.ID); err != nil {
		t.Errorf("Reactors.Delete: %v", err)
	}
	if _, err := manager.Reactors.Get(ctx, made.ID); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("Reactors.Get after the deletion = %v, want ErrNotFound", err)
	}
}

func walkRuns(ctx context.Context, t *testing.T, manager, private *client.Client, id string, runs bool) {
	t.Helper()
	status := func(err error) int {
		var refusal *client.Error
		if errors.As(err, &refusal) {
			return refusal.Status
		}
		return 0
	}
	for args, want := range map[string]int{`{"n":1.50}`: 0, `{"declined":true}`: 402, `{"fail":true}`: 422, `[]`: 400, `"{{ none }}"`: 400} {
		if !runs && (want == 0 || want == 402) {
			want = 422
		}
		got, err := private.Reactors.React(ctx, id, api.React{Args: json.RawMessage(args)})
		if status(err) != want || want == 0 && (err != nil || string(got.Raw) != `{"n":1.5}` || len(got.Tokens) == 0) {
			t.Errorf("Reactors.React with %s = %s, %v, want status %d", args, got.Raw, err, want)
		}
	}
	started, err := private.Reactors.ReactAsync(ctx, id, api.React{Args: map[string]any{}, TimeoutMS: 210000})
	if err != nil {
		t.Fatalf("Reactors.ReactAsync: %v", err)
	}
	waittest.Until(t, "the result is there", func() bool {
		_, err = private.Reactors.Result(ctx, id, started.AsyncReactorRequestID)
		return !errors.Is(err, client.ErrNotFound)
	})
	if runs && err != nil || !runs && status(err) != 422 {
		t.Errorf("Reactors.Result: %v", err)
	}
	taken := make(chan struct{}, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { taken <- struct{}{} }))
	defer receiver.Close()
	if _, err := private.Reactors.React(ctx, id, api.React{Args: map[string]any{}, CallbackURL: receiver.URL, TimeoutMS: 210000}); err != nil {
		t.Errorf("Reactors.React with a callback: %v", err)
	}
	waittest.Receive(t, "a delivery to the callback", taken)
	list, err := manager.Reactors.RunsPage(ctx, id, 1, 100)
	if err != nil || (list.Pagination.TotalItems > 0) != runs || runs && len(list.Data[len(list.Data)-1].Console) != 1 {
		t.Errorf("Reactors.RunsPage = %+v, %v", list.Pagination, err)
	}
}

func TestReactorsAnswerAsDescribed(t *testing.T) {
	storetest.Long(t)
	v := start(t, map[string]string{"sandbox.level": "full", "sandbox.runtime": runtimetest.Find(t).Folder})
	walkReactors(t.Context(), t, func(key string) *client.Client { return v.client(t, key) }, v.keys, true)
	for _, pattern := range needCode {
		if !slices.Contains(v.watch.Seen(pattern), 200) {
			t.Errorf("the walk saw no success of %s: statuses %v", pattern, v.watch.Seen(pattern))
		}
	}
	for name, body := range map[string]string{"no code": `{"name":"x","code":"let let","configuration":{}}`, "no application": `{"name":"x","code":"1","configuration":{},"application":{"id":"none"}}`} {
		if got := v.send(t, "POST", "/reactors", body); got != 400 {
			t.Errorf("%s: POST /reactors → %d, want 400", name, got)
		}
	}
}
