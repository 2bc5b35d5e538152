package expression_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

const store = `{"books":[{"title":"Sayings","author":"Rees","price":8.95,"tags":["a"]},{"title":"Moby Dick","author":"Melville","price":8.99,"isbn":"0-553"},` +
	`{"title":"Rings","author":"Tolkien","price":22.99,"isbn":"0-395","sold":true}],"bicycle":{"color":"red","price":19.95},"a b":1,"it's":2,"big":9007199254740993,"null":null,"π":3.1}`

// find evaluates the json filter with the path given as data, so that any
// quotes may stand in it.
func find(t testing.TB, path, data string) (string, error) {
	t.Helper()
	var b jsonvalue.Builder
	b.Add("path", jsonvalue.NewString(path))
	b.Add("in", parseJSON(t, data))
	return evaluate("{{ data.in | json: data.path }}", b.Value())
}

func TestPathsThatFindOneValue(t *testing.T) {
	for path, want := range map[string]string{
		"$.bicycle.color": `"red"`, "$['bicycle']['color']": `"red"`, `$["bicycle"].price`: `19.95`, "$.books[0].title": `"Sayings"`, "$.books[-1].title": `"Rings"`,
		"$.books[-1:].title": `"Rings"`, "$.books[1:2].title": `"Moby Dick"`, "$.books[:1].title": `"Sayings"`, "$.books[2:].author": `"Tolkien"`, "$['a b']": `1`,
		`$["it's"]`: `2`, `$['it\'s']`: `2`, "$.big": `9007199254740993`, "$.null": `null`, "$.π": `3.1`, "$.bicycle.*[0]": "", "$..color": `"red"`, "$..isbn": "",
		"$..tags[0]": `"a"`, "$..[?(@.color)].color": `"red"`, "$.books[?(@.price < 8.99)].title": `"Sayings"`, "$.books[?(@.price<=8.95)].title": `"Sayings"`,
		"$.books[?(@.price > 22)].title": `"Rings"`, "$.books[?@.price >= 22.99].title": `"Rings"`, "$.books[?(@.author == 'Melville')].title": `"Moby Dick"`,
		`$.books[?(@.author == "Melville")].title`: `"Moby Dick"`, "$.books[?(@.author != 'Rees' && @.price < 10)].title": `"Moby Dick"`,
		"$.books[?(@.price > 20 || @.price < 8.96)].title": "", "$.books[?(!@.isbn)].title": `"Sayings"`, "$.books[?(@.sold)].title": `"Rings"`,
		"$.books[?(@.sold == true)].title": `"Rings"`, "$.books[?(@.isbn == null)].title": "", "$.books[?(@.price > $.bicycle.price)].title": `"Rings"`,
		"$.books[?(@.tags[0] == 'a')].title": `"Sayings"`, "$.books[?((@.price < 10) && !(@.isbn))].title": `"Sayings"`, "$[ 'bicycle' ][ 'color' ]": `"red"`,
		"$.books[?(@.price == 8.950)].title": `"Sayings"`, "$.books[?(@.author == 'X')].title": "", "$.nope": "", "$.books[9]": "", "$.books.title": "", "$.books[*].title": "",
		"$.books[?(@.nope != 1 && @.sold)].title": `"Rings"`,
	} {
		got, err := find(t, path, store)
		if want == "" {
			if !errors.Is(err, fault.Invalid) {
				t.Errorf("%s = %s, %v, want an invalid fault", path, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("%s = %s, %v, want %s", path, got, err, want)
		}
	}
	if got, err := find(t, "$", `"x"`); err != nil || got != `"x"` {
		t.Errorf("$ = %s, %v", got, err)
	}
}

func TestPathsThatAreNotPaths(t *testing.T) {
	for _, path := range []string{
		"", "a", "@", "$.", "$..", "$a", "$[", "$[]", "$['a", "$['a'", "$[a]", "$[1", "$[1,2]", "$[?]", "$[?(]", "$[?(@.a ==)]", "$[?(@.a == b)]", "$[?(@.a == 1]",
		"$.a b", "$[99999999999999999999]", "$[?" + strings.Repeat("(", 20) + "@" + strings.Repeat(")", 20) + "]", "$[?" + strings.Repeat("!", 20) + "@]", "$" + strings.Repeat(".a", 65),
	} {
		if got, err := find(t, path, store); !errors.Is(err, fault.Invalid) {
			t.Errorf("%q = %s, %v, want an invalid fault", path, got, err)
		}
	}
}

func TestCache(t *testing.T) {
	c := expression.NewCache(2, 1000)
	first, err := c.Parse(nil, "{{ data.a }}")
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := c.Parse(nil, "{{ data.a }}"); again != first {
		t.Error("a kept template was parsed again")
	}
	_, _ = c.Parse(nil, "{{ data.b }}")
	_, _ = c.Parse(nil, "{{ data.a }}")
	_, _ = c.Parse(nil, "{{ data.c }}")
	if again, _ := c.Parse(nil, "{{ data.a }}"); again != first || c.Len() != 2 {
		t.Errorf("the template used last went first, or %d are kept", c.Len())
	}
	if _, err := c.Parse(nil, "{{ nope }}"); !errors.Is(err, fault.Invalid) || c.Len() != 2 {
		t.Errorf("what does not parse: %v, %d kept", err, c.Len())
	}
	if _, err := c.Parse(nil, strings.Repeat("x", 500)); err != nil || c.Len() != 2 {
		t.Errorf("a template larger than the cache: %v, %d kept", err, c.Len())
	}
	if _, err := c.Parse(nil, strings.Repeat("x", 120)); err != nil || c.Len() != 1 {
		t.Errorf("a template that fills the cache: %v, %d kept, want 1", err, c.Len())
	}
	var none *expression.Cache
	if v, err := none.Parse(nil, "x"); err != nil || !v.IsLiteral() {
		t.Errorf("no cache: %v", err)
	}
}

func TestCacheServesManyAtOnce(t *testing.T) {
	c := expression.NewCache(3, 10_000)
	done := make(chan error)
	for worker := range 8 {
		go func() {
			var failed error
			for i := range 200 {
				text := "{{ data.x" + itoa((worker+i)%5) + " }}"
				if _, err := c.Parse(nil, text); err != nil {
					failed = err
				}
			}
			done <- failed
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if c.Len() > 3 {
		t.Errorf("%d templates are kept, want 3 at most", c.Len())
	}
}
