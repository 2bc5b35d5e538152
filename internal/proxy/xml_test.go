package proxy_test

import (
	"encoding/xml"
	"errors"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// TestCDATASectionsKeepValuesAsTheyAreAndEverythingElseIsEscaped: <id> stands
// for a token with the value of the row.
func TestCDATASectionsKeepValuesAsTheyAreAndEverythingElseIsEscaped(t *testing.T) {
	w := newWorld(t)
	p := w.define(`{"name":"p","destination_url":"https://psp.example"}`)
	for name, c := range map[string]struct{ value, body, want string }{
		"a section":                                   {`<b a="1">&`, `<a><![CDATA[x{{<id>}}y]]></a>`, `<a><![CDATA[x<b a="1">&y]]></a>`},
		"a section and text":                          {`<&`, `<a>{{<id>}}<![CDATA[{{<id>}}]]>{{<id>}}</a>`, `<a>&lt;&amp;<![CDATA[<&]]>&lt;&amp;</a>`},
		"a value that would end the section":          {`a]]><evil/>`, `<a><![CDATA[{{<id>}}]]></a>`, `<a><![CDATA[a]]]]><![CDATA[><evil/>]]></a>`},
		"an end of value and document":                {`]]`, `<a><![CDATA[{{<id>}}>]]></a>`, `<a><![CDATA[]]]]><![CDATA[>]]></a>`},
		"an end of document and value":                {`]>`, `<a><![CDATA[]{{<id>}}]]></a>`, `<a><![CDATA[]]]]><![CDATA[>]]></a>`},
		"an end of two values":                        {`]]>]`, `<a><![CDATA[{{<id>}}{{<id>}}]]></a>`, `<a><![CDATA[]]]]><![CDATA[>]]]]]><![CDATA[>]]]></a>`},
		"a value that ends in brackets":               {`]]`, `<a><![CDATA[{{<id>}}]]></a>`, `<a><![CDATA[]]]]></a>`},
		"an expression that holds an end":             {`<`, `<a><![CDATA[{{<id> | append: ']]>'}}]]>{{<id>}}</a>`, `<a><![CDATA[<]]]]><![CDATA[>]]>&lt;</a>`},
		"what looks like a section in a comment":      {`--><evil/>`, `<a><!-- <![CDATA[{{<id>}}]]> --></a>`, `<a><!-- <![CDATA[--&gt;&lt;evil/&gt;]]> --></a>`},
		"in a comment that holds an expression":       {`-->`, `<a><!-- {{<id> | append: '-->'}} <![CDATA[{{<id>}}]]> --></a>`, `<a><!-- --&gt;--&gt; <![CDATA[--&gt;]]> --></a>`},
		"in a processing instruction":                 {`?><evil/>`, `<?p <![CDATA[{{<id>}}]]> ?><a/>`, `<?p <![CDATA[?&gt;&lt;evil/&gt;]]> ?><a/>`},
		"in an attribute":                             {`"><evil/>`, `<a b="<![CDATA[{{<id>}}]]>" c='<![CDATA[{{<id>}}]]>'/>`, `<a b="<![CDATA[&#34;&gt;&lt;evil/&gt;]]>" c='<![CDATA[&#34;&gt;&lt;evil/&gt;]]>'/>`},
		"in an attribute behind an expression":        {`">`, `<a b="{{ <id> | append: "'" }}<![CDATA[{{<id>}}]]>"/>`, `<a b="&#34;&gt;&#39;<![CDATA[&#34;&gt;]]>"/>`},
		"in a document type":                          {`"><evil>`, `<!DOCTYPE a [<!-- it's --><!ENTITY b "<![CDATA[{{<id>}}]]>">]><a>&b;<![CDATA[{{<id>}}]]></a>`, `<!DOCTYPE a [<!-- it's --><!ENTITY b "<![CDATA[&#34;&gt;&lt;evil&gt;]]>">]><a>&b;<![CDATA["><evil>]]></a>`},
		"a section without an end":                    {`<`, `<a><![CDATA[{{<id>}}</a>`, `<a><![CDATA[&lt;</a>`},
		"a comment without an end":                    {`<`, `<a><!-- <![CDATA[{{<id>}}]]></a>`, `<a><!-- <![CDATA[&lt;]]></a>`},
		"a comment inside a section":                  {`<`, `<a><![CDATA[<!--]]>{{<id>}}<![CDATA[{{<id>}}-->]]></a>`, `<a><![CDATA[<!--]]>&lt;<![CDATA[<-->]]></a>`},
		"an expression whose end is in doubt":         {`-->`, `<a><!-- {{<id> | append: '}}-->'}} <![CDATA[{{<id>}}]]> --></a>`, `<a><!-- --&gt;}}--&gt; <![CDATA[--&gt;]]> --></a>`},
		"one whose end is in doubt by a reference":    {`<`, `<a>{{<id> | append: "&quot;}}"}}<![CDATA[{{<id>}}]]></a>`, `<a>&lt;"}}<![CDATA[&lt;]]></a>`},
		"references in text":                          {`a`, `<a>&lt;{{<id> | append: &quot;&lt;&amp;&gt;&apos;&#xe9;&#233;&quot;}}&gt;</a>`, `<a>&lt;a&lt;&amp;&gt;&#39;éé&gt;</a>`},
		"a reference that is decoded once":            {`a`, `<a>{{<id> | append: '&amp;lt;'}}</a>`, `<a>a&amp;lt;</a>`},
		"references to braces do not end expressions": {`a`, `<a>{{<id> | append: '&#125;&#x7D;&lt;b>'}}</a>`, `<a>a&amp;#125;&amp;#x7D;&lt;b&gt;</a>`},
		"references that there are not":               {`a`, `<a>{{<id> | append: '&nbsp;&#0;&#xD800;&;&'}}</a>`, `<a>a&amp;nbsp;&amp;#0;&amp;#xD800;&amp;;&amp;</a>`},
		"a space that an expression takes":            {`a`, `<a>  {{- <id> -}}  <![CDATA[ {{- <id> -}} ]]> </a>`, `<a>a<![CDATA[a]]> </a>`},
	} {
		t.Run(name, func(t *testing.T) {
			id := w.token(c.value)
			fill := strings.NewReplacer("<id>", id).Replace
			_, _, err := w.call(p, "POST", "/", "application/xml", fill(c.body))
			if err != nil {
				t.Fatalf("Invoke = %v", err)
			}
			if got := w.got[0].body; got != fill(c.want) {
				t.Errorf("the destination got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestAValueInACDATASectionIsBoundedAndValid(t *testing.T) {
	w := newWorld(t)
	p := w.define(`{"name":"p","destination_url":"https://psp.example"}`)
	for name, c := range map[string]struct {
		value, body string
		kind        fault.Kind
	}{
		"a character that XML cannot hold": {"a\x07", "<a><![CDATA[{{<id>}}]]></a>", fault.Invalid},
		"too large once it is split":       {strings.Repeat("]]>", 1000), "<a><![CDATA[" + strings.Repeat("{{<id>}}", 1000) + "]]></a>", fault.TooLarge},
		"an expression without its end":    {"a", "<a><![CDATA[{{<id>]]></a>", fault.Invalid},
		"a token that is not there":        {"a", "<a><![CDATA[{{ nothing-there }}]]></a>", fault.Invalid},
	} {
		body := strings.ReplaceAll(c.body, "<id>", w.token(c.value))
		if _, _, err := w.call(p, "POST", "/", "text/xml", body); !errors.Is(err, c.kind) || len(w.got) != 0 {
			t.Errorf("%s: Invoke = %v with %d requests, want %v and none", name, err, len(w.got), c.kind)
		}
	}
	// Documents that never end what they begin cost no more than others.
	id := w.token(card)
	for _, begin := range []string{"<![CDATA[", "<!--", "<?", "<!", "<a '", "<![CDATA[]]>", "<", "{{" + id + "}}<![CDATA["} {
		_, _, _ = w.call(p, "POST", "/", "text/xml", strings.Repeat(begin, (1<<20)/len(begin))+"{{"+id+"}}")
	}
	var element struct {
		Text string `xml:",chardata"`
	}
	if _, _, err := w.call(p, "POST", "/", "text/xml", "<a><![CDATA[{{"+id+"}}]]></a>"); err != nil || xml.Unmarshal([]byte(w.got[0].body), &element) != nil || element.Text != card {
		t.Errorf("Invoke = %v, %v", w.got, err)
	}
}
