package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

func Example() {
	ctx := context.Background()
	url, key := vault() // such as https://vault.example, and the key of a management application

	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	a, err := c.Applications.Create(ctx, api.CreateApplication{
		Name: "Checkout page", Type: "public", Permissions: []string{"token:create"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Name, "has a key:", a.Key != "")

	// From now on nobody is shown the key again.
	a, err = c.Applications.Get(ctx, a.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Name, "has a key:", a.Key != "")
	// Output:
	// Checkout page has a key: true
	// Checkout page has a key: false
}

func ExampleError() {
	url, key := vault()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Applications.Create(context.Background(), api.CreateApplication{Name: "Till", Type: "cash", Permissions: []string{"token:create"}})

	fmt.Println(errors.Is(err, client.ErrInvalid), errors.Is(err, client.ErrConflict))
	var refused *client.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Status, refused.Problem.Errors["type"])
	}
	// Output:
	// true false
	// 400 [must be public, private or management]
}

func ExampleApplications_List() {
	url, key := vault()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	for a, err := range c.Applications.List(context.Background(), client.ApplicationFilter{Types: []string{"management"}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(a.Name)
	}
	// Output:
	// management
}

// A key is replaced without a pause: the new one comes in before the old goes.
func ExampleKeys_Create() {
	ctx := context.Background()
	url, key := vault()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	a, err := c.Applications.Create(ctx, api.CreateApplication{Name: "Server", Type: "private", Permissions: []string{"token:use"}})
	if err != nil {
		log.Fatal(err)
	}
	fresh, err := c.Keys.Create(ctx, a.ID)
	if err != nil {
		log.Fatal(err)
	}
	// Hand fresh.Key to the server here, and see it used.
	if err := c.Keys.Delete(ctx, a.ID, a.Keys[0].ID); err != nil {
		log.Fatal(err)
	}
	keys, err := c.Keys.List(ctx, a.ID)
	if err != nil {
		log.Fatal(err)
	}
	for _, k := range keys {
		fmt.Println("version", k.Version, k.ID == fresh.ID)
	}
	// Output:
	// version 2 true
}

func ExampleLogs_List() {
	ctx := context.Background()
	url, key := vault()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	own, err := c.Applications.Own(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range c.Logs.List(ctx, client.LogFilter{EntityType: "application", EntityID: own.ID}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Message, "by", e.ActorType)
		break // the newest alone
	}
	// Output:
	// Application retrieved by application
}

func ExampleTokens_Create() {
	ctx := context.Background()
	url, key := checkout() // the key of a private application
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	card, err := c.Tokens.Create(ctx, api.CreateToken{
		Type:     "card",
		Data:     map[string]any{"number": "4242424242424242", "expiration_month": 12, "expiration_year": 2030},
		Metadata: map[string]string{"order": "1001"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("made:", string(card.Data))

	card, err = c.Tokens.Get(ctx, card.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("read:", string(card.Data))
	// Output:
	// made: {"number":"XXXXXXXXXXXX4242","expiration_month":12,"expiration_year":2030}
	// read: {"number":"4242424242424242","expiration_month":12,"expiration_year":2030}
}

// A merge patch changes what it names and leaves the rest.
func ExampleTokens_Update() {
	ctx := context.Background()
	url, key := checkout()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	token, err := c.Tokens.Create(ctx, api.CreateToken{Type: "token", Data: "Jane Doe", Metadata: map[string]string{"tier": "gold", "shop": "7"}})
	if err != nil {
		log.Fatal(err)
	}
	token, err = c.Tokens.Update(ctx, token.ID, map[string]any{"metadata": map[string]any{"tier": nil}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(token.Metadata)
	// Output:
	// map[shop:7]
}

// Any JSON goes in; the same structure comes out with tokens in place of
// values, and back again.
func ExampleClient_Tokenize() {
	ctx := context.Background()
	url, key := checkout()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	out, err := c.Tokenize(ctx, map[string]any{"name": "Jane Doe", "nothing": nil})
	if err != nil {
		log.Fatal(err)
	}
	var safe struct{ Name string }
	if err := json.Unmarshal(out, &safe); err != nil {
		log.Fatal(err)
	}
	clear, err := c.Detokenize(ctx, map[string]any{"to": "Dear {{ " + safe.Name + " }}"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(clear))
	// Output:
	// {"to":"Dear Jane Doe"}
}

func ExampleTokens_Search() {
	ctx := context.Background()
	url, key := checkout()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Tokens.Create(ctx, api.CreateToken{Type: "social_security_number", Data: "123-45-6789"})
	if err != nil {
		log.Fatal(err)
	}
	for token, err := range c.Tokens.Search(ctx, "type:social_security_number AND data:6789") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(token.Data))
	}
	// Output:
	// "123-45-6789"
}

// A browser gets a key that lives minutes and may read one card.
func ExampleSessions_Authorize() {
	ctx := context.Background()
	url, key := checkout()
	server, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	card, err := server.Tokens.Create(ctx, api.CreateToken{Type: "card_number", Data: "4242424242424242"})
	if err != nil {
		log.Fatal(err)
	}

	// In the browser: a session that may do nothing yet.
	url, key = website()
	page, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	session, err := page.Sessions.Create(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// On the server, which the browser has sent the nonce to.
	err = server.Sessions.Authorize(ctx, api.AuthorizeSession{
		Nonce: session.Nonce,
		Rules: []api.Rule{{
			Transform: "reveal", Permissions: []string{"token:read"},
			Conditions: []api.Condition{{Attribute: "id", Operator: "equals", Value: card.ID}},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}

	// In the browser again.
	page, err = client.New(url, client.WithKey(session.SessionKey))
	if err != nil {
		log.Fatal(err)
	}
	card, err = page.Tokens.Get(ctx, card.ID)
	fmt.Println(string(card.Data), err)
	_, err = page.Tokens.Create(ctx, api.CreateToken{Type: "token", Data: "more"})
	fmt.Println(errors.Is(err, client.ErrForbidden))
	// Output:
	// "4242424242424242" <nil>
	// true
}

func ExampleAccess_Explain() {
	ctx := context.Background()
	url, key := vault()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	got, err := c.Access.Explain(ctx, api.ExplainAccess{
		Proposed: &api.ProposedGrant{Type: "private", Rules: []api.Rule{
			{Container: "/pci/low/", Transform: "reveal", Permissions: []string{"token:read"}},
			{Container: "/pci/", Transform: "mask", Permissions: []string{"token:read"}},
		}},
		Permission: "token:read", Container: "/pci/high/",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.Allowed, got.Transform)
	for _, step := range got.Steps {
		fmt.Println(*step.Rule, step.Reason)
	}
	// Output:
	// true mask
	// 0 the rule is about another container
	// 1 the rule matches and decides
}

func ExampleAccess_Who() {
	ctx := context.Background()
	url, key := vault()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	for holder, err := range c.Access.Who(ctx, "token:search", "/pci/") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(holder.Kind, holder.Name, holder.Transform)
	}
	// Output:
	// application private reveal
}

func ExampleReactors_Create() {
	ctx := context.Background()
	url, key := vault()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	made, err := c.Reactors.Create(ctx, api.WriteReactor{
		Name:          "Last four",
		Code:          "module.exports = async (req) => ({ raw: req.args.card.number.slice(-4) });",
		Configuration: map[string]string{"URL": "https://psp.example"},
	})
	if err != nil {
		log.Fatal(err)
	}
	err = c.Reactors.Patch(ctx, made.ID, map[string]any{"configuration": map[string]any{"URL": nil, "REGION": "eu"}})
	if err != nil {
		log.Fatal(err)
	}
	made, err = c.Reactors.Get(ctx, made.ID)
	fmt.Println(made.Configuration, err)
	// A server runs it with
	//	c.Reactors.React(ctx, made.ID, api.React{Args: map[string]any{"card": "{{ " + card.ID + " }}"}})

	// Output:
	// map[REGION:eu] <nil>
}

// A call that was cut off is made again under its key, even after a restart,
// and takes effect once.
func ExampleIdempotencyKey() {
	ctx := context.Background()
	url, key := checkout()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	var ids []string
	for range 2 {
		token, err := c.Tokens.Create(ctx, api.CreateToken{Type: "token", Data: "Jane Doe"}, client.IdempotencyKey("order-1001"))
		if err != nil {
			log.Fatal(err)
		}
		ids = append(ids, token.ID)
	}
	fmt.Println(ids[0] == ids[1])
	// Output:
	// true
}

// Entries come as they are made, for as long as the context lasts. Whoever
// starts again gives the time of the last entry as From.
func ExampleLogs_Follow() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	url, key := vault()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	a, err := c.Applications.Create(ctx, api.CreateApplication{Name: "Till", Type: "public", Permissions: []string{"token:create"}})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range c.Logs.Follow(ctx, client.LogFilter{EntityID: a.ID}, client.Following{Past: 1}) {
		if err != nil {
			log.Fatal(err) // a server that is away for a while is none
		}
		fmt.Println(e.Message)
		stop()
	}
	// Output:
	// Application created
}

// A destination gets the number; neither this program nor its logs ever do.
func ExampleProxies_Invoke() {
	ctx := context.Background()
	psp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer psp.Close()
	url, key := vault()
	manager, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	proxy, err := manager.Proxies.Create(ctx, api.WriteProxy{Name: "payments", DestinationURL: psp.URL})
	if err != nil {
		log.Fatal(err)
	}

	url, key = checkout()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		log.Fatal(err)
	}
	card, err := c.Tokens.Create(ctx, api.CreateToken{Type: "card_number", Data: "4242424242424242"})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := c.Proxies.Invoke(ctx, proxy.Key, client.ProxyCall{
		Path: "/charges", Body: []byte(`{"amount":100,"number":"{{ ` + card.ID + ` }}"}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.DestinationStatus, string(answer.Body))
	// Output:
	// 200 {"amount":100,"number":"4242424242424242"}
}
