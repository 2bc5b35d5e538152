package openapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

// TestTheValidatorUnderstandsOpenAPI31 has a document of its own for each word
// that JSON Schema had not in OpenAPI 3.0: an answer that is right and one that
// is not, with the schema in place and behind a reference.
func TestTheValidatorUnderstandsOpenAPI31(t *testing.T) {
	cases := map[string]struct{ schema, right, wrong string }{
		"several types":                {`{type: [string, integer]}`, `7`, `true`},
		"null among types":             {`{type: [string, 'null']}`, `null`, `7`},
		"null is not a string":         {`{type: string}`, `"x"`, `null`},
		"the type null":                {`{type: 'null'}`, `null`, `0`},
		"nullable members":             {`{type: object, properties: {a: {type: [object, 'null'], properties: {b: {type: [integer, 'null']}}}}}`, `{"a":{"b":null}}`, `{"a":{"b":"x"}}`},
		"nullable lists":               {`{type: [array, 'null'], maxItems: 1, items: {type: string}}`, `null`, `["a","b"]`},
		"const":                        {`{const: a}`, `"a"`, `"b"`},
		"a const number":               {`{const: 1}`, `1`, `2`},
		"const among members":          {`{type: object, properties: {a: {const: true}}}`, `{"a":true}`, `{"a":false}`},
		"examples change nothing":      {`{type: string, examples: [a, b]}`, `"c"`, `1`},
		"a bound that is left out":     {`{type: integer, exclusiveMinimum: 5}`, `6`, `5`},
		"an upper bound left out":      {`{type: integer, exclusiveMaximum: 5}`, `4`, `5`},
		"words beside a reference":     {`{$ref: '#/components/schemas/Text', maxLength: 2}`, `"ab"`, `"abc"`},
		"the reference beside words":   {`{$ref: '#/components/schemas/Text', maxLength: 2}`, `"ab"`, `1`},
		"a tuple":                      {`{type: array, prefixItems: [{type: string}, {type: integer}]}`, `["a",1]`, `["a","b"]`},
		"a schema that takes nothing":  {`{type: object, properties: {a: false}}`, `{}`, `{"a":1}`},
		"if and then":                  {`{type: object, if: {properties: {a: {const: 1}}, required: [a]}, then: {required: [b]}}`, `{"a":1,"b":1}`, `{"a":1}`},
		"names by pattern":             {`{type: object, patternProperties: {'^x': {type: integer}}}`, `{"x1":1}`, `{"x1":"a"}`},
		"members beside a composition": {`{allOf: [{type: object, properties: {a: {type: integer}}}], unevaluatedProperties: false}`, `{"a":1}`, `{"a":1,"b":1}`},
		"members that need others":     {`{type: object, dependentRequired: {a: [b]}}`, `{"a":1,"b":1}`, `{"a":1}`},
	}
	for name, c := range cases {
		for place, schema := range map[string]string{"in place": c.schema, "behind a reference": `{$ref: '#/components/schemas/It'}`} {
			t.Run(name+" "+place, func(t *testing.T) {
				d := openapitest.Parse(t, fmt.Sprintf(versionDocument, schema, c.schema))
				for body, wanted := range map[string]bool{c.right: true, c.wrong: false} {
					answer := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}, "Svc-Trace-Id": {"t"}}}
					if err := d.CheckAnswer(httptest.NewRequest("GET", "/x", nil), answer, []byte(body)); (err == nil) != wanted {
						t.Errorf("the answer %s: %v, want it taken: %t", body, err, wanted)
					}
					if body == "null" {
						continue // which counts as absent in requests
					}
					r := httptest.NewRequest("POST", "/x", strings.NewReader(body))
					r.Header.Set("Content-Type", "application/json")
					if err := d.CheckRequest(r, []byte(body), &http.Response{StatusCode: 200}); (err == nil) != wanted {
						t.Errorf("the request %s: %v, want it taken: %t", body, err, wanted)
					}
				}
			})
		}
	}
}

const versionDocument = `
openapi: 3.1.0
info: {title: t, version: '1'}
paths:
  /x:
    get:
      responses:
        '200':
          description: d
          content: {application/json: {schema: &schema %s}}
    post:
      requestBody: {required: true, content: {application/json: {schema: *schema}}}
      responses: {'200': {description: d}}
components:
  schemas:
    Text: {type: string}
    It: %s
`
