package expression

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

var escapeHTML = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

var webFilters = []filter{
	widening("url_encode", "Percent-encoded for a query; a space becomes `+`.", url.QueryEscape, example("data | url_encode", `"a b&c"`, `"a+b%26c"`)),
	{
		name: "url_decode", doc: "The reverse of url_encode.",
		examples: []Example{example("data | url_decode", `"a+b%26c"`, `"a b&c"`)},
		apply: func(c *call) jsonvalue.Value {
			s, err := url.QueryUnescape(c.text())
			if err != nil || !utf8.ValidString(s) {
				return c.fail(errInput)
			}
			return c.string(s)
		},
	},
	widening("escape", "With the characters that mean something in HTML escaped.", escapeHTML.Replace, example("data | escape", `"a < 'b'"`, `"a &lt; &#39;b&#39;"`)),
	widening("escape_once", "As escape, but what is escaped already stays.", escapeOnce, example("data | escape_once", `"1 < 2 &amp; 3"`, `"1 &lt; 2 &amp; 3"`)),
	changing("strip_html", "Without what stands in HTML tags, scripts, styles and comments.", stripHTML, example("data | strip_html", `"<b>a</b><!-- x --> c"`, `"a c"`)),
	widening("newline_to_br", "With `<br />` before each line break.", func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "<br />\n")
	}, example("data | newline_to_br", `"a\nb"`, `"a<br />\nb"`)),
}

// widening is a change by which a text may grow, at most sevenfold.
func widening(name, doc string, change func(string) string, examples ...Example) filter {
	return changing(name, doc, change, examples...).guarded(func(c *call, apply func(*call) jsonvalue.Value) jsonvalue.Value {
		if c.budget.spend(7*len(c.text())) != nil {
			return c.fail(errWork)
		}
		return apply(c)
	})
}

// escapeOnce leaves an & that begins an entity.
func escapeOnce(s string) string {
	var out strings.Builder
	for {
		at := strings.IndexByte(s, '&')
		if at < 0 {
			out.WriteString(escapeHTML.Replace(s))
			return out.String()
		}
		out.WriteString(escapeHTML.Replace(s[:at]))
		s = s[at:]
		if n := entity(s); n > 0 {
			out.WriteString(s[:n])
			s = s[n:]
			continue
		}
		out.WriteString("&amp;")
		s = s[1:]
	}
}

// entity is the length of the entity that s begins with, 0 when there is none.
func entity(s string) int {
	end := strings.IndexByte(s[:min(len(s), 12)], ';')
	if end < 2 {
		return 0
	}
	name := strings.TrimPrefix(s[1:end], "#")
	if name == "" || strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return 0
	}
	return end + 1
}

// stripHTML takes out everything from a < to what ends it; a < that nothing
// ends stays.
func stripHTML(s string) string {
	var out strings.Builder
	enders := []struct {
		begin, end string
		missing    bool // it does not come any more: looking for it again would be quadratic
	}{{"<!--", "-->", false}, {"<script", "</script>", false}, {"<style", "</style>", false}, {"<", ">", false}}
next:
	for {
		at := strings.IndexByte(s, '<')
		if at < 0 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:at])
		s = s[at:]
		for i := range enders {
			e := &enders[i]
			if e.missing || !strings.HasPrefix(s, e.begin) {
				continue
			}
			if end := strings.Index(s, e.end); end >= 0 {
				s = s[end+len(e.end):]
				continue next
			}
			e.missing = true
		}
		out.WriteString(s)
		return out.String()
	}
}
