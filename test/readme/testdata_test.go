package readme_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// rowsOf returns the cells of the tables under a heading, without their quotes.
func rowsOf(t *testing.T, page, heading string) (rows [][]string) {
	t.Helper()
	_, section, ok := strings.Cut(page, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("there is no section %s", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, _ := strings.Cut(section, "|---")
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		var row []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			row = append(row, strings.Trim(strings.TrimSpace(cell), "`"))
		}
		rows = append(rows, row)
	}
	return rows
}

var spaces = regexp.MustCompile(`([,:]) `)

func TestTheTestDataIsTakenAndRefusedAsThePageSays(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "test-data.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	s := keeptest.Start(t, keeptest.Options{})
	key := s.Application(t, s.Tenant(t).Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}}).Key
	create := func(kind, data string) keeptest.Answer {
		t.Helper()
		return s.Call(t, http.MethodPost, "/tokens", key, `{"type":"`+kind+`","data":`+data+`}`)
	}
	cards, others, refused := rowsOf(t, page, "Cards"), rowsOf(t, page, "Accounts and identity numbers"), rowsOf(t, page, "What is refused")
	if len(cards) < 10 || len(others) < 7 || len(refused) < 5 {
		t.Fatalf("the page has %d cards, %d other values and %d that are refused: the search is wrong", len(cards), len(others), len(refused))
	}
	for _, row := range cards {
		var made struct {
			Data, Card struct{ Number, Brand string }
		}
		create("card", `{"number":"`+row[0]+`"}`).Into(t, http.StatusCreated, &made)
		if made.Card.Brand != row[1] || made.Data.Number != row[2] {
			t.Errorf("%s is shown as %+v, want %s", row[0], made, row[1:])
		}
		create("card_number", `"`+row[0]+`"`).Into(t, http.StatusCreated, &struct{}{})
	}
	tried := map[string]bool{"card": true, "card_number": true}
	for _, row := range others {
		var made struct{ Data json.RawMessage }
		create(row[0], row[1]).Into(t, http.StatusCreated, &made)
		if want := spaces.ReplaceAllString(row[2], "$1"); string(made.Data) != want {
			t.Errorf("%s %s is shown as %s, want %s", row[0], row[1], made.Data, want)
		}
		tried[row[0]] = true
	}
	for _, kind := range token.Types() {
		if !tried[kind.Name] {
			t.Errorf("the page has nothing of the type %s", kind.Name)
		}
	}
	for _, row := range refused {
		var problem api.Problem
		create(row[0], row[1]).Into(t, http.StatusBadRequest, &problem)
		if len(problem.Errors) != 1 || problem.Errors[row[2]] == nil {
			t.Errorf("%s %s is refused with %v, want %s", row[0], row[1], problem.Errors, row[2])
		}
	}
}
