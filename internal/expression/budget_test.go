package expression_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// allocated returns how many bytes a function allocates.
func allocated(do func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// What an attacker gets out of one short request, in bytes: the limit on memory
// counts the values, and the allocator takes a few times as much.
const mostAllocated = 16 << 20

func TestShortExpressionsCannotTakeMuch(t *testing.T) {
	numbers := "[" + strings.Repeat("1e-399,1.5e399,", 1500) + "1]"
	long := strings.Repeat("a", 18_000)
	accented := strings.Repeat("é", 5000)
	for name, c := range map[string]struct{ text, data string }{
		"a text that grows and is cut into characters": {"{{ 1 | pad_left: 999999, 'x' | replace: 'x', 'xxxxxxxx' | split: '' | size }}{{ data }}", `1`},
		"a text that grows and is sliced":              {"{{ 1 | pad_left: 999999, 'x' | replace: 'x', '" + strings.Repeat("x", 60) + "' | slice: 1, 2 }}{{ data }}", `1`},
		"many copies of a text":                        {"{{ data" + strings.Repeat("|append:data", 100) + "|size}}", `"` + long + `"`},
		"many aliases of a long text":                  {"{{ data" + strings.Repeat("|alias_preserve_length", 250) + "|slice:0,9}}", `"` + long + `"`},
		"characters looked for in a long text":         {"{{ data.a" + strings.Repeat("|card_mask:true,true,'X',data.b", 40) + "|slice:0,9}}", `{"a":"` + accented + `","b":"` + accented + `x"}`},
		"large numbers sorted often":                   {"{{ data" + strings.Repeat("|sort", 100) + "|size}}", numbers},
		"large numbers compared in a path":             {"{{ data | json: '$[?(@ == 1e-400 || @ == 1e400 || @ == 2e-400 || @ == 2e400)]' }}", numbers},
		"large numbers summed":                         {strings.Repeat("{{ data | sum }}", 100), numbers},
		"a path that descends":                         {"{{ data | json: '$..*..*..*..*..*..*' }}", strings.Repeat("[1,2,3,4,", 60) + "1" + strings.Repeat("]", 60)},
		"a long path":                                  {strings.Repeat("{{ data.v | json: data.p }}", 40), `{"p":"$[?(` + strings.Repeat("@.a==1||", 2000) + `@.a==1)]","v":[{"a":1}]}`},
		"a long format of dates":                       {"{{ 1" + strings.Repeat("|date: data", 50) + "}}", `"` + strings.Repeat("%Y", 9000) + `"`},
		"equal lists compared item by item":            {"{{ data.l" + strings.Repeat("|concat: data.l", 20) + strings.Repeat("|where: 'x', data.x", 20) + "|size}}", `{"l":[{"x":[` + strings.Repeat("1,", 3000) + `1]}],"x":[` + strings.Repeat("1,", 3000) + `1]}`},
		"a list as the name of a field":                {strings.Repeat("{{ data | map: data | size }}", 20), "[" + strings.Repeat(`"b","A",`, 3000) + `1]`},
		"words of a long text":                         {"{{ data" + strings.Repeat("|truncatewords: 9999", 100) + "|size}}", `"` + strings.Repeat("a ", 9000) + `"`},
		"a hash of a long text, often":                 {strings.Repeat("{{ data | hmac: 'sha-512', 'k' }}", 60), `"` + long + `"`},
	} {
		tpl, err := expression.Parse(c.text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		scope := expression.Scope{Data: parseJSON(t, c.data)}
		b, reached := expression.Budget{}, 0
		taken := allocated(func() {
			b = *expression.Limits{Reached: func() { reached++ }}.Budget(t.Context())
			err = tpl.Stream(io.Discard, scope, expression.Options{Random: rand.Reader, Budget: &b})
		})
		if !beyondBudget(err) || reached != 1 {
			t.Errorf("%s, %d bytes: %v, reached %d times; want the budget to be used up once", name, len(c.text)+len(c.data), err, reached)
		}
		if taken > mostAllocated {
			t.Errorf("%s: %d bytes allocated, want at most %d", name, taken, mostAllocated)
		}
		if again := tpl.Stream(io.Discard, scope, expression.Options{Random: rand.Reader, Budget: &b}); !errors.Is(again, err) {
			t.Errorf("%s: a used up budget gives %v, want %v", name, again, err)
		}
	}
}

func TestAllExpressionsOfARequestShareTheBudget(t *testing.T) {
	data := parseJSON(t, `"`+strings.Repeat("x", 10_000)+`"`)
	for name, c := range map[string]struct {
		text string
		code string
	}{
		"steps":  {strings.Repeat("{{ data | size }}", 100), "expression_steps"},
		"memory": {strings.Repeat("{{ data | upcase | size }}", 10), "expression_memory"},
	} {
		tpl, err := expression.Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		b, done := expression.Limits{}.Budget(t.Context()), 0
		for ; done < 1000 && err == nil; done++ {
			_, err = tpl.Evaluate(expression.Scope{Data: data}, expression.Options{Budget: b})
		}
		if done < 5 || done > 50 || fault.Of(err).Code() != c.code {
			t.Errorf("%s: %d evaluations, then %v; want between 5 and 50, then %s", name, done, err, c.code)
		}
		if _, err := expression.EvaluateMask(jsonvalue.NewString("x"), data, expression.MaskOptions{Budget: b}); fault.Of(err).Code() != c.code {
			t.Errorf("%s: a mask on the same budget: %v, want %s", name, err, c.code)
		}
	}
}

func TestParsingCostsTheRequest(t *testing.T) {
	long := "{{ data | append: '" + strings.Repeat("x", 60_000) + "' }}"
	cache := expression.NewCache(10, 16<<20)
	for name, parse := range map[string]func(*expression.Budget, string) error{
		"template":        func(b *expression.Budget, text string) error { _, err := expression.ParseWithin(b, text); return err },
		"cached template": func(b *expression.Budget, text string) error { _, err := cache.Parse(b, text); return err },
		"detokenization": func(b *expression.Budget, text string) error {
			_, err := expression.ParseDetokenization(b, text)
			return err
		},
		"document": func(b *expression.Budget, text string) error {
			_, err := expression.ParseDocument(b, jsonvalue.NewString(text))
			return err
		},
		"mask of one text": func(b *expression.Budget, text string) error {
			_, err := expression.EvaluateMask(jsonvalue.NewString(text), jsonvalue.NewString("d"), expression.MaskOptions{Budget: b})
			return err
		},
	} {
		b, done := expression.Limits{}.Budget(t.Context()), 0
		var err error
		for ; done < 10_000 && err == nil; done++ {
			err = parse(b, long)
		}
		if done > 100 || !beyondBudget(err) {
			t.Errorf("%s: %d texts of 60 KB were parsed, then %v; want the budget to be used up", name, done, err)
		}
	}
}

// leaver ends a context when it is first read from, and counts what is read.
type leaver struct {
	leave context.CancelFunc
	reads int
}

func (l *leaver) Read(p []byte) (int, error) {
	l.leave()
	l.reads += len(p)
	return rand.Read(p)
}

func TestEvaluationStopsWhenTheCallerLeaves(t *testing.T) {
	tpl, err := expression.Parse("{{ data | alias_preserve_length | slice: 0, 9 }}")
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	l := &leaver{leave: leave}
	b, reached := expression.Limits{Reached: func() { t.Error("a caller who left reached a limit") }}.Budget(ctx), 0
	for range 100 {
		if _, err = tpl.Evaluate(expression.Scope{Data: jsonvalue.NewString(strings.Repeat("a", 100))}, expression.Options{Random: l, Budget: b}); err != nil {
			break
		}
		reached++
	}
	if !errors.Is(err, context.Canceled) || reached > 1 || l.reads > 1000 {
		t.Errorf("%d evaluations and %d characters after the caller left, then %v; want at most one, then the end of the context", reached, l.reads, err)
	}
	many, err := expression.Parse("{{ data" + strings.Repeat("|alias_preserve_length", 100) + "| slice: 0, 9 }}")
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave = context.WithCancel(t.Context())
	l = &leaver{leave: leave}
	_, err = many.Evaluate(expression.Scope{Data: jsonvalue.NewString(strings.Repeat("a", 400))}, expression.Options{Random: l, Budget: expression.Limits{}.Budget(ctx)})
	if !errors.Is(err, context.Canceled) || l.reads > 2000 {
		t.Errorf("one expression went on for %d characters after the caller left, then %v; want at most 2000, then the end of the context", l.reads, err)
	}
}

func TestOneMaskHasAPartOfTheBudget(t *testing.T) {
	text := strings.Repeat("x", 10_000)
	mask := jsonvalue.NewString(strings.Repeat("{{ data | size }}", 80))
	b := expression.Limits{}.Budget(t.Context())
	_, err := expression.EvaluateMask(mask, jsonvalue.NewString(text), expression.MaskOptions{Budget: b})
	if fault.Of(err).Code() != "expression_steps" {
		t.Errorf("a mask that takes more than its part: %v, want expression_steps", err)
	}
	if err := b.Err(); err != nil {
		t.Errorf("after it, the request may not go on: %v", err)
	}
	if _, err := expression.EvaluateMask(mask, jsonvalue.NewString(text), expression.MaskOptions{Budget: b, DataSize: 4 * len(text)}); err != nil {
		t.Errorf("the same over more data: %v", err)
	}
}

func TestABudgetGrowsWithTheDataUpToItsBound(t *testing.T) {
	limits := expression.Limits{Steps: 1000, Memory: 1000}
	for name, c := range map[string]struct {
		budget        *expression.Budget
		grow          int
		steps, memory int
	}{
		"by nothing":                      {limits.Budget(t.Context()), 0, 1000, 1000},
		"by data":                         {limits.Budget(t.Context()), 10, 1160, 1040},
		"by no more than a body may have": {limits.BodyBudget(t.Context(), 10), 1000, 1160, 1040},
	} {
		c.budget.Grow(c.grow)
		if steps, memory := c.budget.Left(); steps != c.steps || memory != c.memory {
			t.Errorf("%s: %d steps and %d bytes, want %d and %d", name, steps, memory, c.steps, c.memory)
		}
	}
}

// Random expressions within the limit on text: what they allocate is paid for,
// and so is bounded.
func TestRandomExpressionsPayForWhatTheyTake(t *testing.T) {
	docs := expression.Filters()
	data := parseJSON(t, `{"s":"`+strings.Repeat("ab é<1, ", 150)+`","n":"`+strings.Repeat("9", 300)+`","e":1e-300,"l":[`+strings.Repeat(`3,"x",{"a":[1,2,3],"b":"c"},`, 60)+`null],"m":[`+
		strings.Repeat("1e300,2.5e-300,", 60)+`1],"o":`+strings.Repeat(`{"a":[1,`, 25)+"1"+strings.Repeat("]}", 25)+`}`)
	rapid.Check(t, func(t *rapid.T) {
		argument := rapid.SampledFrom([]string{
			"data.s", "data.n", "data.e", "data.l", "data.m", "data.o", "''", "'a'", "' '", "'X'", "1", "0", "-1", "5", "65000", "true", "'%Y-%m-%d %H%9N'", "'sha-256'",
			"'$..*..*'", "'$..[?(@.a == $.l)]'", "'$[?(@ > 1)]'", "'" + strings.Repeat("y", 50) + "'",
		})
		var text strings.Builder
		for range rapid.IntRange(1, 4).Draw(t, "expressions") {
			text.WriteString("{{ " + argument.Draw(t, "value"))
			for range rapid.IntRange(0, 12).Draw(t, "filters") {
				f := rapid.SampledFrom(docs).Draw(t, "filter")
				text.WriteString(" | " + f.Name)
				for i := range 1 + strings.Count(f.Params, ",") {
					text.WriteString([]string{": ", ", "}[min(i, 1)] + argument.Draw(t, "argument"))
				}
			}
			text.WriteString(" }}")
		}
		tpl, err := expression.Parse(text.String())
		if err != nil {
			return
		}
		b := expression.Limits{}.Budget(context.Background())
		taken := allocated(func() {
			err = tpl.Stream(io.Discard, expression.Scope{Data: data}, expression.Options{Random: rand.Reader, Budget: b})
		})
		if err != nil && !errors.Is(err, fault.Invalid) {
			t.Fatalf("%s: %v", text.String(), err)
		}
		left, free := b.Left()
		steps, memory := expression.DefaultSteps-left, expression.DefaultMemory-free
		if paid := 64<<10 + 8*memory + steps; taken > paid {
			t.Fatalf("%s took %d bytes for %d steps and %d bytes", text.String(), taken, steps, memory)
		}
	})
}
