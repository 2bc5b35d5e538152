package expression

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

var escapeHTML = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

var webFilters = []filter{
	widening("url_encode", "Percent-encoded for a query; a space becomes `+`.", url.QueryEscape, example("data | url_encode", `"a b&c"`, `"a+b%26c"`)),
	{
		name: "url_decode", doc: "The reverse of url_encode. A `%` that two hexadecimal digits do not follow stays; bytes that are not UTF-8 are an error.",
		examples: []Example{example("data | url_decode", `"a+b%26c"`, `"a b&c"`)},
		apply: func(c *call) jsonvalue.Value {
			s := c.inputString()
			if !c.room(len(s)) {
				return jsonvalue.Value{}
			}
			if s = urlDecode(s); !utf8.ValidString(s) {
				return c.fail(errInput)
			}
			return c.string(s)
		},
	},
	widening("escape", "With the characters that mean something in HTML escaped.", escapeHTML.Replace, example("data | escape", `"a < 'b'"`, `"a &lt; &#39;b&#39;"`)),
	widening("h", "The same as escape.", escapeHTML.Replace, example("data | h", `"<b>"`, `"&lt;b&gt;"`)),
	widening("escape_once", "As escape, but what is escaped already stays.", escapeOnce, example("data | escape_once", `"1 < 2 &amp; 3"`, `"1 &lt; 2 &amp; 3"`)),
	changing("strip_html", "Without what stands in HTML tags, scripts, styles and comments.", stripHTML, example("data | strip_html", `"<b>a</b><!-- x --> c"`, `"a c"`)),
	widening("newline_to_br", "With `<br />` before each line break.", func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "<br />\n")
	}, example("data | newline_to_br", `"a\nb"`, `"a<br />\nb"`)),
	encoding64("base64_encode", "A text in base 64.", base64.StdEncoding, example("data | base64_encode", `"é?"`, `"w6k/"`)),
	decoding64("base64_decode", "The text that base64_encode encoded. Invalid base 64, and bytes that are not UTF-8, are errors.", base64.StdEncoding,
		example("data | base64_decode", `"w6k/"`, `"é?"`)),
	encoding64("base64_url_safe_encode", "A text in base 64 with `-` and `_` in place of `+` and `/`.", base64.URLEncoding, example("data | base64_url_safe_encode", `"é?"`, `"w6k_"`)),
	decoding64("base64_url_safe_decode", "The text that base64_url_safe_encode encoded; the padding may be missing.", base64.URLEncoding,
		example("data | base64_url_safe_decode", `"w6k_"`, `"é?"`), example("data | base64_url_safe_decode", `"YQ"`, `"a"`)),
}

func encoding64(name, doc string, encoding *base64.Encoding, examples ...Example) filter {
	return filter{
		name: name, doc: doc, examples: examples,
		apply: func(c *call) jsonvalue.Value {
			s := c.inputString()
			if !c.room(encoding.EncodedLen(len(s))) {
				return jsonvalue.Value{}
			}
			return c.string(encoding.EncodeToString([]byte(s)))
		},
	}
}

func decoding64(name, doc string, encoding *base64.Encoding, examples ...Example) filter {
	return filter{
		name: name, doc: doc, examples: examples,
		apply: func(c *call) jsonvalue.Value {
			s := c.inputString()
			if strings.ContainsAny(s, "\r\n") || !c.room(encoding.DecodedLen(len(s))) { // the decoder would skip line breaks
				return c.fail(errInput)
			}
			strict := encoding.Strict()
			if encoding == base64.URLEncoding && !strings.HasSuffix(s, "=") {
				strict = strict.WithPadding(base64.NoPadding)
			}
			decoded, err := strict.DecodeString(s)
			if err != nil || !utf8.Valid(decoded) {
				return c.fail(errInput)
			}
			return c.string(string(decoded))
		},
	}
}

func urlDecode(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch b := s[i]; {
		case b == '+':
			out.WriteByte(' ')
		case b == '%' && i+2 < len(s):
			if decoded, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				out.Write(decoded)
				i += 2
				continue
			}
			out.WriteByte(b)
		default:
			out.WriteByte(b)
		}
	}
	return out.String()
}

// widening is a change by which a text may grow, at most sevenfold.
func widening(name, doc string, change func(string) string, examples ...Example) filter {
	return changing(name, doc, change, examples...).guarded(func(c *call, apply func(*call) jsonvalue.Value) jsonvalue.Value {
		if n := weight(c.in); !c.spend(7*n) || 7*n > c.budget.memory && !c.allocate(7*n) {
			return jsonvalue.Value{}
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
