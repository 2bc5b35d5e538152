package script_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/script"
)

func TestWhatBecomesOfThrows(t *testing.T) {
	unprocessable := func(detail string) api.Problem {
		return api.Problem{Title: "Unprocessable Entity", Status: 422, Detail: detail}
	}
	many := map[string][]string{}
	for i := range 150 {
		many[fmt.Sprintf("%03d", i)] = []string{"x"}
	}
	long, _ := json.Marshal(many)
	kept := map[string][]string{}
	for i := range 100 {
		kept[fmt.Sprintf("%03d", i)] = []string{"x"}
	}
	for name, test := range map[string]struct {
		thrown sandbox.Thrown
		want   api.Problem
	}{
		"a class":                  {sandbox.Thrown{Name: "InvalidPaymentMethodError", Status: 402, Errors: json.RawMessage(`{"error":["a secret","b"]}`)}, api.Problem{Title: "Payment Required", Status: 402, Detail: "Invalid Payment Method", Errors: map[string][]string{"error": {"a [protected]", "b"}}}},
		"a class without errors":   {sandbox.Thrown{Name: "BadRequestError", Status: 400, Message: "not told"}, api.Problem{Title: "Bad Request", Status: 400, Detail: "Bad Request"}},
		"errors of another shape":  {sandbox.Thrown{Name: "BadRequestError", Status: 400, Errors: json.RawMessage(`["x"]`)}, api.Problem{Title: "Bad Request", Status: 400, Detail: "Bad Request"}},
		"more errors than allowed": {sandbox.Thrown{Name: "BadRequestError", Status: 400, Errors: long}, api.Problem{Title: "Bad Request", Status: 400, Detail: "Bad Request", Errors: kept}},
		"errors beyond all bounds": {sandbox.Thrown{Name: "BadRequestError", Status: 400, Errors: json.RawMessage(`{"a":["` + strings.Repeat("x", 300<<10) + `"]}`)}, api.Problem{Title: "Bad Request", Status: 400, Detail: "Bad Request", Errors: map[string][]string{"error": {"the message is too long to be shown"}}}},
		"a class's name alone":     {sandbox.Thrown{Name: "AuthenticationError", Message: "m"}, unprocessable("m")},
		"with another status":      {sandbox.Thrown{Name: "AuthenticationError", Status: 403, Message: "m"}, unprocessable("m")},
		"a status alone":           {sandbox.Thrown{Name: "Error", Status: 401, Message: "m"}, unprocessable("m")},
		"a message":                {sandbox.Thrown{Name: "Error", Message: "the secret is out"}, unprocessable("the [protected] is out")},
		"no message":               {sandbox.Thrown{Name: "Error"}, unprocessable("the code threw an error without a message")},
		"a long message":           {sandbox.Thrown{Message: strings.Repeat("é", 2001)}, unprocessable(strings.Repeat("é", 2000) + "…")},
		"a message at the bound":   {sandbox.Thrown{Message: strings.Repeat("é", 2000)}, unprocessable(strings.Repeat("é", 2000))},
		"one beyond all bounds":    {sandbox.Thrown{Message: strings.Repeat("x", 300<<10)}, unprocessable("the message is too long to be shown")},
		"a status that ends none":  {sandbox.Thrown{Name: "CustomHttpResponseError", Custom: &sandbox.CustomResponse{Status: 101}}, unprocessable("the code answered with a status that is not from 200 to 599")},
		"a status that is none":    {sandbox.Thrown{Name: "CustomHttpResponseError", Custom: &sandbox.CustomResponse{Status: 600}}, unprocessable("the code answered with a status that is not from 200 to 599")},
		"a custom answer of none":  {sandbox.Thrown{Name: "CustomHttpResponseError", Status: 200, Message: "m"}, unprocessable("m")},
	} {
		err := script.ErrorOf(test.thrown, values("secret")...)
		var thrown *script.Thrown
		if !errors.As(err, &thrown) || !errors.Is(err, fault.Unprocessable) {
			t.Errorf("%s = %v, want what was thrown", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, thrown.Problem()); diff != "" {
			t.Errorf("%s: want (-), got (+):\n%s", name, diff)
		}
		if strings.Contains(err.Error(), test.thrown.Message) && test.thrown.Message != "" {
			t.Errorf("%s: the words of the code stand in the error itself, which a log may show", name)
		}
	}
}

func TestACustomAnswerIsPassedOnWhole(t *testing.T) {
	err := script.ErrorOf(sandbox.Thrown{Name: "CustomHttpResponseError", Custom: &sandbox.CustomResponse{
		Status: 418, Headers: map[string]string{"X-A": "b"}, Body: json.RawMessage(`{"a":"secret"}`),
	}}, values("secret")...)
	var custom *script.Custom
	if !errors.As(err, &custom) || custom.Status != 418 || custom.Headers["X-A"] != "b" || string(custom.Body) != `{"a":"secret"}` {
		t.Errorf("ErrorOf = %+v", err)
	}
	if !errors.Is(err, fault.Unprocessable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a custom answer as an error = %v", err)
	}
}
