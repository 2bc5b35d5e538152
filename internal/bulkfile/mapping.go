package bulkfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tokenkeep/tokenkeep/internal/luhn"
)

// Mapping says what the columns of a file become.
type Mapping struct {
	Type       Value            `yaml:"type"`
	ID         Value            `yaml:"id"`     // of the token; absent: a UUID
	OldID      Value            `yaml:"old_id"` // how the file names the record, for the results
	Data       Value            `yaml:"data"`
	Metadata   map[string]Value `yaml:"metadata"`
	Containers []Value          `yaml:"containers"`
	ExpiresAt  Value            `yaml:"expires_at"`
}

// Value is a constant, what a column holds, or an object of values.
type Value struct {
	constant any
	column   string
	as       string
	fields   map[string]Value
	order    []string
}

// The forms that a column is read in.
const (
	asText    = "text"    // as it stands, without white space around it
	asDigits  = "digits"  // without spaces and dashes
	asInteger = "integer" // a whole number
	asMonth   = "month"   // 9, 09, or the month of 09/2030, 09/30, 0930 or 2030-09
	asYear    = "year"    // 2030, 30, or the year of such a date
)

var forms = []string{asText, asDigits, asInteger, asMonth, asYear}

var (
	errMapping = errors.New("the mapping is not valid: see docs/import.md")
	errForm    = errors.New("the mapping is not valid: as must be text, digits, integer, month or year")
	errNoData  = errors.New("the mapping is not valid: type and data are required")
)

// UnmarshalYAML reads a text, a number, {column: …, as: …}, or an object of
// such values.
func (v *Value) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		var number int64
		if n.Tag == "!!int" && n.Decode(&number) == nil {
			v.constant = number
			return nil
		}
		v.constant = n.Value
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return errMapping
	}
	v.fields = make(map[string]Value)
	for i := 0; i+1 < len(n.Content); i += 2 {
		var member Value
		if err := member.UnmarshalYAML(n.Content[i+1]); err != nil {
			return err
		}
		v.fields[n.Content[i].Value] = member
		v.order = append(v.order, n.Content[i].Value)
	}
	column, isColumn := v.fields["column"]
	if !isColumn {
		return nil
	}
	name, isText := column.constant.(string)
	form, _ := v.fields["as"].constant.(string)
	if form == "" {
		form = asText
	}
	if !isText || len(v.order) > 2 || len(v.order) == 2 && v.fields["as"].constant == nil {
		return errMapping
	}
	if !slices.Contains(forms, form) {
		return errForm
	}
	*v = Value{column: strings.ToLower(name), as: form}
	return nil
}

func (v Value) isZero() bool { return v.constant == nil && v.column == "" && v.fields == nil }

// ParseMapping reads a mapping in YAML.
func ParseMapping(text []byte) (*Mapping, error) {
	var m Mapping
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil {
		if errors.Is(err, errForm) {
			return nil, errForm
		}
		return nil, errMapping // the library's words quote the file
	}
	if m.Type.isZero() || m.Data.isZero() {
		return nil, errNoData
	}
	return &m, nil
}

// columns returns the names of all columns that are read.
func (m *Mapping) columns() (names []string) {
	var add func(v Value)
	add = func(v Value) {
		if v.column != "" && !slices.Contains(names, v.column) {
			names = append(names, v.column)
		}
		for _, name := range v.order {
			add(v.fields[name])
		}
	}
	for _, v := range append([]Value{m.Type, m.ID, m.OldID, m.Data, m.ExpiresAt}, m.Containers...) {
		add(v)
	}
	for _, v := range m.Metadata {
		add(v)
	}
	return names
}

// apply makes the request of a record, whose columns get returns.
func (m *Mapping) apply(get func(column string) string) (request []byte, oldID string, err *RecordError) {
	r := row{get: get}
	out := make(map[string]any)
	set := func(name string, v Value) {
		if got := r.value(name, v); got != nil {
			out[name] = got
		}
	}
	set("type", m.Type)
	set("id", m.ID)
	set("data", m.Data)
	set("expires_at", m.ExpiresAt)
	metadata := make(map[string]any)
	for name, v := range m.Metadata {
		if got := r.value("metadata", v); got != nil {
			metadata[name] = text(got)
		}
	}
	if len(metadata) > 0 {
		out["metadata"] = metadata
	}
	var containers []any
	for _, v := range m.Containers {
		if got := r.value("containers", v); got != nil {
			containers = append(containers, text(got))
		}
	}
	if containers != nil {
		out["containers"] = containers
	}
	if old := r.value("old_id", m.OldID); old != nil {
		oldID = shownID(text(old))
	}
	if r.err != nil {
		return nil, oldID, r.err
	}
	request, encodeErr := json.Marshal(out)
	if encodeErr != nil {
		return nil, oldID, &RecordError{Message: "cannot be written as JSON"}
	}
	return request, oldID, nil
}

// shownID keeps what may be a card number out of results and rejects.
func shownID(id string) string {
	if luhn.HasCard(id) {
		return ""
	}
	return id
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

// row reads the values of one record and keeps the first error.
type row struct {
	get func(column string) string
	err *RecordError
}

// value returns a text, a number or an object; nil for a column that is empty.
func (r *row) value(path string, v Value) any {
	switch {
	case v.fields != nil:
		out := make(map[string]any)
		for _, name := range v.order {
			if got := r.value(path+"."+name, v.fields[name]); got != nil {
				out[name] = got
			}
		}
		return out
	case v.column == "":
		return v.constant
	}
	s := strings.TrimSpace(r.get(v.column))
	if s == "" {
		return nil
	}
	got, message := read(s, v.as)
	if message != "" && r.err == nil {
		r.err = &RecordError{path, message}
	}
	return got
}

// read reads a text in a form; the message says what is wrong with it.
func read(s, as string) (v any, message string) {
	switch as {
	case asDigits:
		return strings.NewReplacer(" ", "", "-", "").Replace(s), ""
	case asInteger:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, "is not a whole number"
		}
		return n, ""
	case asMonth:
		month, _ := monthAndYear(s)
		if month < 1 || month > 12 {
			return nil, "is not a month"
		}
		return month, ""
	case asYear:
		_, year := monthAndYear(s)
		if year < 1 {
			return nil, "is not a year"
		}
		return year, ""
	}
	return s, ""
}

// monthAndYear reads an expiry: a month or a year on its own is both. 0 is what
// is not there.
func monthAndYear(s string) (month, year int64) {
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	full := func(s string) int64 {
		n := number(s)
		if n > 0 && len(s) <= 2 {
			n += 2000
		}
		return n
	}
	if first, second, found := strings.Cut(strings.ReplaceAll(s, "-", "/"), "/"); found {
		if len(first) == 4 {
			return number(second), number(first)
		}
		return number(first), full(second)
	}
	if len(s) == 4 && number(s) < 1900 { // MMYY
		return number(s[:2]), full(s[2:])
	}
	return number(s), full(s)
}
