package openapitest

import (
	"fmt"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
)

// CheckExamples returns what is wrong with the examples of the operations: a
// parameter, a body or a header without one, and every one that is not what
// its schema describes. It also returns how many there are.
func (d *Document) CheckExamples() (wrong []string, count int) {
	written := d.strict()
	if written.err != nil {
		return []string{written.err.Error()}, 0
	}
	x := examples{}
	for _, o := range d.Operations() {
		in := operationOf(written.requests, o.Pattern)
		for _, p := range in.parameters {
			x.look(o.Pattern+" "+p.Value.In+" parameter "+p.Value.Name, p.Value.Schema, p.Value.Example, p.Value.Examples)
		}
		if in.operation.RequestBody != nil {
			x.content(o.Pattern+" request", in.operation.RequestBody.Value.Content)
		}
		for status, r := range operationOf(written.responses, o.Pattern).operation.Responses.Map() {
			where := o.Pattern + " " + status
			x.content(where, r.Value.Content)
			for name, h := range r.Value.Headers {
				x.look(where+" header "+name, h.Value.Schema, h.Value.Example, h.Value.Examples)
			}
		}
	}
	slices.Sort(x.wrong)
	return slices.Compact(x.wrong), x.count
}

// described is an operation with all of its parameters.
type described struct {
	operation  *openapi3.Operation
	parameters openapi3.Parameters
}

func operationOf(doc *openapi3.T, pattern string) described {
	method, path := methodAndPath(pattern)
	item := doc.Paths.Value(path)
	o := item.GetOperation(method)
	return described{o, slices.Concat(item.Parameters, o.Parameters)}
}

type examples struct {
	wrong []string
	count int
}

func (x *examples) content(where string, c openapi3.Content) {
	for media, m := range c {
		x.look(where+" "+media, m.Schema, m.Example, m.Examples)
	}
}

// look judges one example, or several, beside a schema or in it.
func (x *examples) look(where string, schema *openapi3.SchemaRef, one any, several openapi3.Examples) {
	var values []any
	if one != nil {
		values = append(values, one)
	}
	for _, e := range several {
		values = append(values, e.Value.Value)
	}
	values = append(values, schema.Value.Examples...)
	if len(values) == 0 {
		x.wrong = append(x.wrong, where+" has no example")
	}
	for _, v := range values {
		x.count++
		if err := schema.Value.VisitJSON(v, openapi3.EnableJSONSchema2020(), openapi3.MultiErrors()); err != nil {
			x.wrong = append(x.wrong, fmt.Sprintf("%s has an example that is none: %v", where, err))
		}
	}
}
