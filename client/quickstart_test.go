package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

// Example_quickStart is docs/quickstart-go.md, piece by piece.
func Example_quickStart() {
	defer withVariables()()
	ctx := context.Background()
	c, err := client.New(os.Getenv("TOKENKEEP_URL"), client.WithKey(os.Getenv("TOKENKEEP_API_KEY")))
	if err != nil {
		log.Fatal(err)
	}

	card, err := c.Tokens.Create(ctx, api.CreateToken{
		Type:     "card",
		Data:     map[string]any{"number": "4242424242424242", "expiration_month": 12, "expiration_year": 2030},
		Metadata: map[string]string{"customer": "jane"},
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

	charge, err := c.Detokenize(ctx, map[string]any{"amount": 1999, "number": "{{ " + card.ID + " | json: '$.number' }}"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("charge:", string(charge))

	for token, err := range c.Tokens.List(ctx, client.TokenFilter{Metadata: map[string]string{"customer": "jane"}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("found:", token.Type, token.Card.Last4)
	}

	_, err = c.Tokens.Create(ctx, api.CreateToken{Type: "card", Data: map[string]any{"number": "4242424242424241"}})
	var refused *client.Error
	switch {
	case errors.Is(err, client.ErrUnavailable):
		fmt.Println("try again later")
	case errors.As(err, &refused):
		fmt.Println("refused:", refused.Status, refused.Problem.Errors["data.number"])
		fmt.Println("to ask the operator about:", refused.TraceID != "")
	}

	// Output:
	// made: {"number":"XXXXXXXXXXXX4242","expiration_month":12,"expiration_year":2030}
	// read: {"number":"4242424242424242","expiration_month":12,"expiration_year":2030}
	// charge: {"amount":1999,"number":"4242424242424242"}
	// found: card 4242
	// refused: 400 [the card number is not valid: check it for a mistyped digit]
	// to ask the operator about: true
}

// withVariables sets what tells a program of yours where its server is.
func withVariables() (restore func()) {
	url, key := checkout()
	_ = os.Setenv("TOKENKEEP_URL", url)
	_ = os.Setenv("TOKENKEEP_API_KEY", key)
	return func() { _ = errors.Join(os.Unsetenv("TOKENKEEP_URL"), os.Unsetenv("TOKENKEEP_API_KEY")) }
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```\n")

// TestTheQuickStartIsWhatRuns holds the page against the example, which is run.
func TestTheQuickStartIsWhatRuns(t *testing.T) {
	source, err := os.ReadFile("quickstart_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(source), "defer withVariables()()\n")
	body, printed, _ := strings.Cut(body, "\n\t// Output:\n")
	printed, _, _ = strings.Cut(printed, "}\n\n//")
	page, err := os.ReadFile("../docs/quickstart-go.md")
	if err != nil {
		t.Fatal(err)
	}
	var typed strings.Builder
	for _, m := range goBlock.FindAllStringSubmatch(string(page), -1) {
		typed.WriteString(m[1] + "\n")
	}
	if got, want := strings.TrimSpace(typed.String()), strings.TrimSpace(strings.ReplaceAll(body, "\n\t", "\n")); got != strings.TrimPrefix(want, "\t") {
		t.Errorf("the pieces of docs/quickstart-go.md are\n%s\nand what runs is\n%s", got, want)
	}
	for line := range strings.Lines(printed) {
		if line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "// ")); line != "" && !strings.Contains(string(page), line+"\n") {
			t.Errorf("docs/quickstart-go.md does not show %q", line)
		}
	}
}
