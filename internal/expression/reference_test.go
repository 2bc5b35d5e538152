package expression_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// The published behaviour of the reference implementation of Liquid.
func TestStandardFiltersBehaveAsTheReference(t *testing.T) {
	const products = `[{"title":"vacuum","type":"cleaning","on":true,"price":10},{"title":"spatula","type":"kitchen","on":false},{"title":"garlic press","type":"kitchen","on":null,"price":"2.5"}]`
	for name, c := range map[string]struct{ text, data, want string }{
		"base64_encode":                                    {"{{ data | base64_encode }}", `"one two three"`, `"b25lIHR3byB0aHJlZQ=="`},
		"base64_encode of a number":                        {"{{ data | base64_encode }}", `12`, `"MTI="`},
		"base64_encode of nothing in a text":               {"{{ data | base64_encode }}", `""`, `""`},
		"base64_decode":                                    {"{{ data | base64_decode }}", `"b25lIHR3byB0aHJlZQ=="`, `"one two three"`},
		"base64_decode of UTF-8":                           {"{{ data | base64_decode }}", `"4pyF"`, `"✅"`},
		"base64_url_safe_encode keeps the padding":         {"{{ data | base64_url_safe_encode }}", `"??>a"`, `"Pz8-YQ=="`},
		"base64_url_safe_decode":                           {"{{ data | base64_url_safe_decode }}", `"Pz8-YQ=="`, `"??>a"`},
		"base64_url_safe_decode without padding":           {"{{ data | base64_url_safe_decode }}", `"Pz8-YQ"`, `"??>a"`},
		"h is escape":                                      {"{{ data | h }}", `"<strong>"`, `"&lt;strong&gt;"`},
		"squish":                                           {"{{ data | squish }}", `"\n  Boo\t boo \n"`, `"Boo boo"`},
		"squish of white space":                            {"{{ data | squish }}", `" \n "`, `""`},
		"find by value":                                    {"{{ data | find: 'type', 'kitchen' | json: '$.title' }}", products, `"spatula"`},
		"find by truth":                                    {"{{ data | find: 'on' | json: '$.title' }}", products, `"vacuum"`},
		"find finds nothing":                               {"{{ data | find: 'type', 'garden' }}", products, `null`},
		"find in an empty list":                            {"{{ data | find: 'type', 'garden' }}", `[]`, `null`},
		"find in texts by what they contain":               {"{{ data | find: 'be' }}", `["alpha","beta","gamma"]`, `"beta"`},
		"find_index by value":                              {"{{ data | find_index: 'title', 'garlic press' }}", products, `2`},
		"find_index by truth":                              {"{{ data | find_index: 'on' }}", products, `0`},
		"find_index finds nothing":                         {"{{ data | find_index: 'title', 'x' }}", products, `null`},
		"has by value":                                     {"{{ data | has: 'type', 'kitchen' }}", products, `true`},
		"has by the value false":                           {"{{ data | has: 'on', false }}", products, `true`},
		"has finds nothing":                                {"{{ data | has: 'type', 'garden' }}", products, `false`},
		"has in an empty list":                             {"{{ data | has: 'type' }}", `[]`, `false`},
		"reject by value":                                  {"{{ data | reject: 'type', 'kitchen' | map: 'title' }}", products, `["vacuum"]`},
		"reject by truth keeps what is false or not there": {"{{ data | reject: 'on' | map: 'title' }}", products, `["spatula","garlic press"]`},
		"reject of texts by what they contain":             {"{{ data | reject: 'be' }}", `["alpha","beta","gamma"]`, `["alpha","gamma"]`},
		"where of texts by what they contain":              {"{{ data | where: 'be' }}", `["alpha","beta","gamma"]`, `["beta"]`},
		"where by the name null":                           {"{{ data | where: nil }}", `["alpha",1,{}]`, `[]`},

		"abs of text is 0":                         {"{{ data | abs }}", `"text"`, `0`},
		"abs of a text that is a number":           {"{{ data | abs }}", `"-17.42"`, `17.42`},
		"abs of true is 0":                         {"{{ data | abs }}", `true`, `0`},
		"abs of a list is 0":                       {"{{ data | abs }}", `[-1]`, `0`},
		"abs of an object is 0":                    {"{{ data | abs }}", `{"a":1}`, `0`},
		"plus of text adds 0":                      {"{{ data | plus: 'x' }}", `1`, `1`},
		"plus of null adds 0":                      {"{{ data | plus: nil }}", `1`, `1`},
		"plus to text adds to 0":                   {"{{ data | plus: 2 }}", `"x"`, `2`},
		"plus of two texts":                        {"{{ data | plus: '1.0' }}", `"1"`, `2.0`},
		"minus of texts":                           {"{{ data | minus: '2' }}", `"4.3"`, `2.3`},
		"times of text is 0":                       {"{{ data | times: 4 }}", `"foo"`, `0`},
		"a text counts as the integer it begins":   {"{{ data | plus: 1 }}", `"12 apples"`, `13`},
		"the places of such a text do not count":   {"{{ data | plus: 1 }}", `"12.7 apples"`, `13`},
		"such a text may have a sign":              {"{{ data | plus: 1 }}", `" -12px"`, `-11`},
		"a plus sign is one":                       {"{{ data | plus: 1 }}", `"+12"`, `13`},
		"an underscore may stand between digits":   {"{{ data | plus: 1 }}", `"1_000"`, `1001`},
		"two underscores end the number":           {"{{ data | plus: 1 }}", `"1__000"`, `2`},
		"a point in front is no number":            {"{{ data | plus: 1 }}", `".5"`, `1`},
		"at_least of text":                         {"{{ data | at_least: 5 }}", `"x"`, `5`},
		"at_most of text":                          {"{{ data | at_most: 'x' }}", `5`, `0`},
		"ceil of text is 0":                        {"{{ data | ceil }}", `"x"`, `0`},
		"ceil of a text that is a number":          {"{{ data | ceil }}", `"4.3"`, `5`},
		"floor of text is 0":                       {"{{ data | floor }}", `"x"`, `0`},
		"divided_by of text divides 0":             {"{{ data | divided_by: 3 }}", `"x"`, `0`},
		"modulo of text":                           {"{{ data | modulo: 3 }}", `"x"`, `0`},
		"round to tens":                            {"{{ data | round: -1 }}", `15`, `20`},
		"round to tens below zero":                 {"{{ data | round: -1 }}", `-15`, `-20`},
		"round to hundreds of what is less":        {"{{ data | round: -2 }}", `12.75`, `0`},
		"round to more than any number has":        {"{{ data | round: -99999999999999999999 }}", `12`, `0`},
		"round to more places than any number has": {"{{ data | round: 99999999999999999999 }}", `1.25`, `1.25`},
		"round to a text":                          {"{{ data | round: 'x' }}", `4.6`, `5`},
		"round of text is 0":                       {"{{ data | round }}", `"x"`, `0`},
		"sum of numbers":                           {"{{ data | sum }}", `[1,2.5]`, `3.5`},
		"sum of texts":                             {"{{ data | sum }}", `["1","2","x",true,null]`, `3`},
		"sum of lists in lists":                    {"{{ data | sum }}", `[1,[2,[3,4]]]`, `10`},
		"sum of nothing":                           {"{{ data | sum }}", `[]`, `0`},
		"sum of objects is 0":                      {"{{ data | sum }}", `[{"a":1}]`, `0`},
		"sum of a field":                           {"{{ data | sum: 'price' }}", products, `12.5`},
		"sum of one number":                        {"{{ data | sum }}", `5`, `5`},

		"truncate to nothing":                       {"{{ data | truncate: 0 }}", `"1234567890"`, `"..."`},
		"truncate below zero":                       {"{{ data | truncate: -5 }}", `"1234567890"`, `"..."`},
		"truncate with a number behind":             {"{{ data | truncate: 5, 1 }}", `"1234567890"`, `"12341"`},
		"truncate counts characters":                {"{{ data | truncate: 5 }}", `"测试测试测试测试"`, `"测试..."`},
		"truncate to more than any text has":        {"{{ data | truncate: 99999999999999999999 }}", `"abc"`, `"abc"`},
		"truncatewords to 0 keeps one":              {"{{ data | truncatewords: 0 }}", `"one two three four"`, `"one..."`},
		"truncatewords below zero keeps one":        {"{{ data | truncatewords: -1 }}", `"one two"`, `"one..."`},
		"truncatewords joins with spaces":           {"{{ data | truncatewords: 3 }}", `"one  two\tthree\nfour"`, `"one two three..."`},
		"slice of a negative length":                {"{{ data | slice: 1, -1 }}", `"foobar"`, `""`},
		"slice of a list of a negative length":      {"{{ data | slice: 1, -1 }}", `[1,2,3]`, `[]`},
		"slice from beyond the end":                 {"{{ data | slice: 100, 10 }}", `"foobar"`, `""`},
		"slice from far beyond the end":             {"{{ data | slice: 99999999999999999999 }}", `"foobar"`, `""`},
		"slice of more than any text has":           {"{{ data | slice: 1, 99999999999999999999 }}", `"foobar"`, `"oobar"`},
		"slice of a number":                         {"{{ data | slice: 1, 2 }}", `12345`, `"23"`},
		"replace of an empty text":                  {"{{ data | replace: '', '-' }}", `"aé"`, `"-a-é-"`},
		"replace of an empty text in an empty one":  {"{{ data | replace: '', '-' }}", `""`, `"-"`},
		"replace_first of an empty text":            {"{{ data | replace_first: '', '-' }}", `"ab"`, `"-ab"`},
		"replace_last of an empty text":             {"{{ data | replace_last: '', '-' }}", `"ab"`, `"ab-"`},
		"replace of a number":                       {"{{ data | replace: 1, 2 }}", `"1 1 1 1"`, `"2 2 2 2"`},
		"remove of an empty text":                   {"{{ data | remove: '' }}", `"ab"`, `"ab"`},
		"remove of a number":                        {"{{ data | remove_last: 1 }}", `"1 1 1"`, `"1 1 "`},
		"upcase of a number":                        {"{{ data | upcase }}", `12`, `"12"`},
		"upcase of a list takes its string form":    {"{{ data | upcase }}", `["a",1]`, `"[\"A\",1]"`},
		"append to an object takes its string form": {"{{ data | append: '!' }}", `{"b":1,"a":2}`, `"{\"a\":2,\"b\":1}!"`},
		"append of a list takes its string form":    {"{{ data.t | append: data.l }}", `{"t":"x","l":[1]}`, `"x[1]"`},
		"append of null":                            {"{{ data | append: nil }}", `"a"`, `"a"`},
		"split of a number":                         {"{{ data | split: 2 }}", `123`, `["1","3"]`},
		"url_decode keeps what is no escape":        {"{{ data | url_decode }}", `"100% %zz %2 %20+"`, `"100% %zz %2   "`},
		"url_decode":                                {"{{ data | url_decode }}", `"foo%2B1%40example.com"`, `"foo+1@example.com"`},
		"join of a text":                            {"{{ data | join: '-' }}", `"abc"`, `"abc"`},
		"join with a number":                        {"{{ data | join: 1 }}", `[1,1,1]`, `"11111"`},
		"reverse of a text is a list of it":         {"{{ data | reverse }}", `"abc"`, `["abc"]`},
		"reverse of an object is a list of it":      {"{{ data | reverse }}", `{"a":1}`, `[{"a":1}]`},
		"map of an object is a list":                {"{{ data | map: 'a' }}", `{"a":1}`, `[1]`},
		"sort of a text is a list of it":            {"{{ data | sort }}", `"abc"`, `["abc"]`},
		"sort_natural of several kinds":             {"{{ data | sort_natural }}", `["b",null,1,"A"]`, `[1,"A","b",null]`},
		"uniq of a number is a list of it":          {"{{ data | uniq }}", `1`, `[1]`},
		"compact of a text is a list of it":         {"{{ data | compact }}", `"a"`, `["a"]`},
		"concat to a text":                          {"{{ data.t | concat: data.l }}", `{"t":"x","l":[1]}`, `["x",1]`},
		"where of an object":                        {"{{ data | where: 'a', 1 }}", `{"a":1}`, `[{"a":1}]`},
		"first of an object is its first field":     {"{{ data | first }}", `{"b":1,"a":2}`, `["b",1]`},
		"last of an object is nothing":              {"{{ data | last }}", `{"b":1,"a":2}`, `null`},
		"first of an empty object is nothing":       {"{{ data | first }}", `{}`, `null`},
		"default without a value is an empty text":  {"{{ data.x | default }}", `{}`, `""`},
		"default of an empty object":                {"{{ data | default: 'x' }}", `{}`, `"x"`},
		"strip_html of a number":                    {"{{ data | strip_html }}", `12`, `"12"`},
		"escape of a list takes its string form":    {"{{ data | escape }}", `["<"]`, `"[&quot;&lt;&quot;]"`},
		"newline_to_br":                             {"{{ data | newline_to_br }}", `"a\r\nb\nc"`, `"a<br />\nb<br />\nc"`},

		"date of what is no date":                        {"{{ data | date: '%Y' }}", `"not a date"`, `"not a date"`},
		"date of an empty text":                          {"{{ data | date: '%Y' }}", `""`, `""`},
		"date of true":                                   {"{{ data | date: '%Y' }}", `true`, `true`},
		"date of a list":                                 {"{{ data | date: '%Y' }}", `[1]`, `[1]`},
		"date of a fraction":                             {"{{ data | date: '%Y' }}", `1.5`, `1.5`},
		"date of a time too far away":                    {"{{ data | date: '%Y' }}", `99999999999999`, `99999999999999`},
		"date in an empty format":                        {"{{ data | date: '' }}", `"2006-07-05 10:00:00"`, `"2006-07-05 10:00:00"`},
		"date in no format":                              {"{{ data | date: nil }}", `"2006-07-05 10:00:00"`, `"2006-07-05 10:00:00"`},
		"date of a time":                                 {"{{ data | date: '%m/%d/%Y' }}", `"2006-07-05 10:00:00"`, `"07/05/2006"`},
		"date of the time of a C program":                {"{{ data | date: '%m/%d/%Y' }}", `"Fri Jul 16 01:00:00 2004"`, `"07/16/2004"`},
		"date of the time of a message":                  {"{{ data | date: '%F %T' }}", `"Fri, 16 Jul 2004 01:00:00 GMT"`, `"2004-07-16 01:00:00"`},
		"date of seconds":                                {"{{ data | date: '%m/%d/%Y' }}", `1152098955`, `"07/05/2006"`},
		"date of seconds in a text":                      {"{{ data | date: '%m/%d/%Y' }}", `"1152098955"`, `"07/05/2006"`},
		"date keeps unknown directives":                  {"{{ data | date: '%Q %Y %:Y %' }}", `0`, `"%Q 1970 %:Y %"`},
		"date keeps a percent at the end":                {"{{ data | date: '100%' }}", `0`, `"100%"`},
		"date keeps directives too wide":                 {"{{ data | date: '%999Y %100Y' }}", `0`, `"%999Y %100Y"`},
		"date pads with spaces where it does by default": {"{{ data | date: '%4e|%4k|%4l' }}", `"2030-02-13T23:05:06Z"`, `"  13|  23|  11"`},
		"date in weeks":                                  {"{{ data | date: '%U %W %V %G %g' }}", `"2023-01-01"`, `"01 00 52 2022 22"`},
		"date in weeks later in the year":                {"{{ data | date: '%U %W %V %G' }}", `"2024-12-30"`, `"52 53 01 2025"`},
		"date in rarer directives":                       {"{{ data | date: '%C|%k|%l|%r|%v|%n|%t|%N|%3N|%12N|%6L|%+' }}", `"2030-02-03T06:05:06.789Z"`, `"20| 6| 6|06:05:06 AM| 3-FEB-2030|\n|\t|789000000|789|789000000000|789000|Sun Feb  3 06:05:06 UTC 2030"`},
		"date with flags":                                {"{{ data | date: '%-d|%_m|%0e|%^B|%#p|%^a|%-l|%-j' }}", `"2030-02-03T06:05:06Z"`, `"3| 2|03|FEBRUARY|am|SUN|6|34"`},
		"date with widths":                               {"{{ data | date: '%6Y|%4d|%_4d|%10A|%-4d|%3e|%4j' }}", `"2030-02-03T06:05:06Z"`, `"002030|0003|   3|    Sunday|3|  3|0034"`},
		"date with an offset":                            {"{{ data | date: '%z %:z %::z' }}", `"2030-02-03T06:05:06+05:30"`, `"+0530 +05:30 +05:30:00"`},
		"date at midnight and noon":                      {"{{ data | date: '%I %l %p %H' }}", `"2030-02-03T00:00:00Z"`, `"12 12 AM 00"`},
	} {
		got, err := evaluate(c.text, parseJSON(t, c.data))
		if err != nil || got != c.want {
			t.Errorf("%s: %s over %s = %s, %v, want %s", name, c.text, c.data, got, err, c.want)
		}
	}
}

// What the reference refuses as well, or what has no form in JSON.
func TestStandardFiltersRefuseWhatTheReferenceRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, data string }{
		"base64_decode of other text":              {"{{ data | base64_decode }}", `"invalidbase64"`},
		"base64_decode without padding":            {"{{ data | base64_decode }}", `"YQ"`},
		"base64_decode over several lines":         {"{{ data | base64_decode }}", `"YWFh\nYWFh"`},
		"base64_decode with bits that mean none":   {"{{ data | base64_decode }}", `"YR=="`},
		"base64_decode of the other alphabet":      {"{{ data | base64_decode }}", `"Pz8-"`},
		"base64_decode of bytes that are not text": {"{{ data | base64_decode }}", `"/w=="`},
		"base64_url_safe_decode of other text":     {"{{ data | base64_url_safe_decode }}", `"Pz8+"`},
		"divided_by of text":                       {"{{ data | divided_by: 'x' }}", `1`},
		"modulo of text":                           {"{{ data | modulo: 'x' }}", `1`},
		"a text with too many digits":              {"{{ data | plus: 1 }}", `"` + strings.Repeat("9", 401) + `x"`},
		"slice from a text":                        {"{{ data | slice: 'x' }}", `"abc"`},
		"slice from a fraction":                    {"{{ data | slice: 1.5 }}", `"abc"`},
		"truncate to a text":                       {"{{ data | truncate: 'x' }}", `"abc"`},
		"truncatewords to a list":                  {"{{ data | truncatewords: data }}", `["abc"]`},
		"url_decode of bytes that are not text":    {"{{ data | url_decode }}", `"%FFfoo"`},
		"sort of texts and numbers":                {"{{ data | sort }}", `[1,"a"]`},
		"sort of booleans":                         {"{{ data | sort }}", `[true,false]`},
		"concat of a text":                         {"{{ data | concat: 'x' }}", `[1]`},
		"find without a field":                     {"{{ data | find }}", `[]`},
	} {
		got, err := evaluate(c.text, parseJSON(t, c.data))
		if !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %s over %s = %s, %v, want an invalid fault", name, c.text, c.data, got, err)
		}
	}
}

func TestStandardFiltersAreBounded(t *testing.T) {
	big := jsonvalue.NewString(strings.Repeat("x ", 30_000))
	for name, c := range map[string]struct {
		text string
		data jsonvalue.Value
		want string // "" for a budget that is used up
	}{
		"replace of empty texts":             {"{{ data | replace: '', 'yy' }}", big, "the expression makes too much output"},
		"append to an object":                {"{{ data | append: 'x' }}", jsonvalue.NewArray([]jsonvalue.Value{big, big}), "the expression makes too much output"},
		"a long list as the name of a field": {"{{ data.list | find: data.name }}", parseJSON(t, `{"list":["`+strings.Repeat(`a","`, 5000)+`a"],"name":["`+strings.Repeat("x", 60_000)+`"]}`), ""},
		"a date with wide directives":        {"{{ 0 | date: data }}", jsonvalue.NewString(strings.Repeat("%99Y", 10_000)), "the expression makes too much output"},
		"sum of many":                        {strings.Repeat("{{ data | sum }}", 2), parseJSON(t, "["+strings.Repeat("[1,2],", 10_000)+"1]"), ""},
		"sum of nulls in lists":              {strings.Repeat("{{ data | sum }}", 10), parseJSON(t, "["+strings.Repeat("[null,null,null],", 100_000)+"1]"), ""},
		"numbers of long texts":              {strings.Repeat("{{ data[0] | plus: data[0] }}", 50), parseJSON(t, `["`+strings.Repeat("x", 1<<20)+`"]`), ""},
		"base64_encode":                      {"{{ data | base64_encode }}", big, "the expression makes too much output"},
		"find in long texts":                 {strings.Repeat("{{ data | find: 'y' }}", 50), parseJSON(t, `["`+strings.Repeat("x", 5<<20)+`"]`), ""},
		"has in long lists":                  {strings.Repeat("{{ data | has: 'y' }}", 50), parseJSON(t, "["+strings.Repeat("{},", 100_000)+"1]"), ""},
		"reject keeps too many":              {"{{ data | reject: 'y' }}", parseJSON(t, "["+strings.Repeat("{},", 5000)+"1]"), "the expression makes too much output"},
	} {
		if got, err := evaluate(c.text, c.data); fault.Of(err).Detail() != c.want && !(c.want == "" && beyondBudget(err)) {
			t.Errorf("%s: %d bytes, %v, want %s", name, len(got), err, c.want)
		}
	}
}
