package egresstest

import "strings"

// spellings adds the ways to write an IPv4 address that some resolver reads
// and a check may not.
func (c *corpus) spellings() {
	for _, host := range []string{
		// 127.0.0.1
		"127.1", "127.0.1", "0177.0.0.1", "0177.0.0.01", "00000177.0.0.1", "0x7f.0.0.1", "0X7F.0.0.1", "0x7f.0x0.0x0.0x1", "0x7f.1", "0x7f000001", "0x7F000001",
		"0x000000007f000001", "2130706433", "02130706433", "017700000001", "127.0.0.01", "127.000.000.001", "127.0.0.0x1", "127.0.0x0.1", "0x7f.0.01", "0177.1",
		"127.0.0.1.", "127.1.", "2130706433.", "6425673729" /* the same in 33 bits */, "127.0.0.257", "127.0.0.1.1", "127..1", "127.0.0.1%00", "127.0.0.1%20",
		// 0.0.0.0
		"0", "0x0", "00", "0.0", "0.0.0", "000.000.000.000",
		// 169.254.169.254
		"2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "0251.254.169.254", "169.254.43518", "169.16689662", "025177524776",
		// others
		"10.1", "192.168.257", "3232235777", "0xc0a80101", "foo.0x7f", "foo.127", "1.2.3.4.5", "a.0",
	} {
		c.define("IPv4 written as "+host, "https://"+host+":PORT/")
	}
	for _, host := range []string{
		"[::1%25lo]", "[::1%lo]", "[fe80::1%25eth0]", "[fe80::1%eth0]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[0000::1]",
		"[::127.0.0.1]", "[127.0.0.1]", "[::1", "::1]", "[]", "[localhost]", "[v1.x]", "[::1].", "[::1]x", "[::ffff:a00:1]",
	} {
		c.define("IPv6 written as "+host, "https://"+host+":PORT/")
	}
	c.define("a public address", "https://[3000::1]:PORT/")
	c.define("IPv6 without brackets", "https://::1:PORT/")
}

// authorities adds URLs whose host depends on who reads them.
func (c *corpus) authorities() {
	c.defineAll("", "HOST", map[string]string{
		"a user":                           "https://user@pay.example/",
		"a user and password":              "https://user:password@pay.example/",
		"an empty user":                    "https://@pay.example/",
		"a host as the user":               "https://pay.example@127.0.0.1:PORT/",
		"a host and port as the user":      "https://pay.example:443@127.0.0.1:PORT/",
		"a host as the user of localhost":  "https://pay.example@localhost:PORT/",
		"an encoded host as the user":      "https://pay.example%40127.0.0.1:PORT/",
		"two users":                        "https://a@b@127.0.0.1:PORT/",
		"a backslash before the user":      `https://pay.example\@127.0.0.1:PORT/`,
		"a backslash for a slash":          `https://127.0.0.1:PORT\pay.example/`,
		"backslashes after the scheme":     `https:\\127.0.0.1:PORT/`,
		"a fragment before the user":       "https://pay.example#@127.0.0.1:PORT/",
		"a query before the user":          "https://127.0.0.1:PORT?@pay.example/",
		"a backslash in the path":          `https://pay.example/\..\`,
		"a fragment":                       "https://pay.example/#part",
		"an empty fragment":                "https://pay.example/#",
		"a semicolon":                      "https://pay.example;127.0.0.1:PORT/",
		"a comma":                          "https://pay.example,127.0.0.1:PORT/",
		"an encoded dot":                   "https://127%2e0%2e0%2e1:PORT/",
		"an encoded digit":                 "https://%31%32%37.0.0.1:PORT/",
		"an encoded letter":                "https://%6cocalhost:PORT/",
		"an encoded slash":                 "https://pay.example%2f@127.0.0.1:PORT/",
		"an encoded umlaut":                "https://b%C3%BCcher.example:PORT/",
		"an encoded NUL":                   "https://localhost%00.pay.example:PORT/",
		"a double encoding":                "https://127%252e0.0.1:PORT/",
		"a space":                          "https://pay.example 127.0.0.1:PORT/",
		"a space in front":                 " https://127.0.0.1:PORT/",
		"a space at the end":               "https://pay.example/ ",
		"a tab in the host":                "https://127.0.\t0.1:PORT/",
		"a newline in the host":            "https://pay.example\n127.0.0.1:PORT/",
		"a header behind a newline":        "https://pay.example/\r\nHost: 127.0.0.1",
		"a NUL":                            "https://pay.example\x00.127.0.0.1:PORT/",
		"a delete character":               "https://pay.example\x7f/",
		"broken UTF-8":                     "https://pay.example/\xff",
		"broken UTF-8 in the host":         "https://pay\xff.example/",
		"a no-break space":                 "https://pay.example\u00a0:PORT/",
		"no host":                          "https:///path",
		"no host and a port":               "https://:PORT/",
		"no slashes":                       "https:127.0.0.1:PORT/",
		"one slash":                        "https:/127.0.0.1:PORT/",
		"three slashes":                    "https:///127.0.0.1:PORT/",
		"four slashes":                     "https:////127.0.0.1:PORT/",
		"a name with a dot at its end":     "https://pay.example.:PORT/",
		"localhost with a dot at its end":  "https://localhost.:PORT/",
		"a dot in front":                   "https://.pay.example/",
		"two dots":                         "https://pay..example/",
		"only a dot":                       "https://./",
		"a label that begins with a dash":  "https://-pay.example/",
		"a label that ends with a dash":    "https://pay-.example/",
		"an underscore":                    "https://pay_ment.example/",
		"a star":                           "https://*.example/",
		"a template":                       "https://{{host}}.example/",
		"a dollar":                         "https://$host.example/",
		"an exclamation mark":              "https://pay!.example/",
		"a label of 64":                    "https://" + strings.Repeat("a", 64) + ".example/",
		"a name of 254":                    "https://" + strings.Repeat("a.", 124) + "exampl/",
		"a URL of 401":                     "https://pay.example/" + strings.Repeat("a", 401-len("https://pay.example/")),
		"a path that is not ASCII":         "https://pay.example/\u00fc",
		"a query that is not ASCII":        "https://pay.example/?q=\u00fc",
		"a path with a broken encoding":    "https://pay.example/%zz",
		"nothing":                          "",
		"only a scheme":                    "https://",
		"brackets around a name":           "https://[pay.example]/",
		"a bracket inside":                 "https://pay[.example/",
		"two ports":                        "https://pay.example:443:PORT/",
		"a host after a port":              "https://127.0.0.1:PORT:443/",
		"a less-than sign":                 "https://pay<.example/",
		"a quote":                          `https://pay".example/`,
		"a pipe":                           "https://pay|127.0.0.1:PORT/",
		"a caret":                          "https://pay^.example/",
		"a single quote":                   "https://pay'.example/",
		"parentheses":                      "https://(127.0.0.1):PORT/",
		"an ampersand":                     "https://pay&.example/",
		"a plus":                           "https://pay+.example/",
		"an equals sign":                   "https://pay=.example/",
		"a tilde":                          "https://~pay.example/",
		"a greater-than sign":              "https://pay>.example/",
		"a carriage return in the host":    "https://pay.example\r:PORT/",
		"a vertical tab in the path":       "https://pay.example/\v",
		"a form feed at the end":           "https://pay.example/\f",
		"a line separator in the path":     "https://pay.example/\u2028",
		"an ideographic space in the path": "https://pay.example/\u3000",
	})
}

// international adds names that map to something else, or to nothing.
func (c *corpus) international() {
	c.defineAll("international: ", "https://HOST:PORT/", map[string]string{
		"full-width digits":                      "\uff11\uff12\uff17.0.0.1",
		"full-width digits and dots":             "\uff11\uff12\uff17\uff0e\uff10\uff0e\uff10\uff0e\uff11",
		"circled digits":                         "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460",
		"ideographic full stops":                 "127\u30020\u30020\u30021",
		"half-width ideographic stops":           "127\uff610\uff610\uff611",
		"mathematical digits":                    "\U0001d7cf\U0001d7d0\U0001d7d5.0.0.1",
		"superscript digits":                     "\u00b9\u00b2\u2077.0.0.1",
		"a full-width hex number":                "\uff10\uff587f000001",
		"circled letters":                        "\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3",
		"full-width letters":                     "\uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54",
		"a soft hyphen in localhost":             "local\u00adhost",
		"a zero-width space in localhost":        "local\u200bhost",
		"a long s in localhost":                  "localho\u017ft",
		"an information sign in a metadata name": "metadata.google.\u2139nternal",
		"a zero-width joiner":                    "pay\u200d.example",
		"a right-to-left override":               "\u202eelpmaxe.yap.example",
		"an account-of sign":                     "\u2100.example",
		"a full-width slash":                     "pay.example\uff0f127.0.0.1",
		"a full-width number sign":               "pay.example\uff03",
		"a full-width question mark":             "pay.example\uff1f.example",
		"a full-width at sign":                   "pay.example\uff20127.0.0.1",
		"a full-width colon":                     "127.0.0.1\uff1a80",
		"a full-width percent sign":              "127.0.0.1\uff0500",
		"a full-width backslash":                 "pay.example\uff3c127.0.0.1",
		"a replacement character":                "pay\ufffd.example",
		"an unassigned character":                "pay\u0378.example",
		"mixed directions":                       "a\u05d0.\u05d01a.example",
		"a combining mark in front":              "\u0301pay.example",
		"punycode that does not decode":          "xn--\u00fc.example",
		"punycode of nothing":                    "xn--.example",
		"punycode that is not normal":            "xn--a.example",
		"punycode of ASCII":                      "xn--localhost-",
		"punycode that is too long":              "xn--" + strings.Repeat("9", 70) + ".example",
		"dashes in the third place":              "\u00fc---a.example",
		"a dot of another script at end":         "pay.example\u3002",
	})
}

// names adds those that mean something inside alone.
func (c *corpus) names() {
	for _, host := range []string{
		"localhost", "LOCALHOST", "LocalHost", "foo.localhost", "localhost.localdomain", "printer.local", "PRINTER.LOCAL", "vault.internal", "wiki.intranet",
		"db.private", "ad.corp", "nas.home", "nas.home.arpa", "router.lan", "redis", "postgres", "vault", "com", "intranet", "host.docker.internal",
		"gateway.docker.internal", "kubernetes", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "api.default.svc",
		"metadata", "METADATA", "instance-data", "instance-data.ec2.internal", "metadata.google.internal", "Metadata.Google.Internal", "metadata.goog",
		"metadata.azure.internal", "metadata.tencentyun.com", "metadata.platformequinix.com", "metadata.packet.net", "metadata.internal",
		"ip-10-0-0-1.ec2.internal", "ip-10-0-0-1.eu-west-1.compute.internal",
	} {
		c.define("the name "+host, "https://"+host+":PORT/")
	}
}

func (c *corpus) schemes() {
	for _, url := range []string{
		"http://pay.example/", "HTTP://pay.example/", "http://pay.example:PORT/", "ftp://pay.example/", "ftps://pay.example/", "file:///etc/passwd", "file://127.0.0.1/etc/passwd",
		"gopher://127.0.0.1:PORT/_", "dict://127.0.0.1:PORT/", "ldap://127.0.0.1:PORT/", "ldaps://127.0.0.1:PORT/", "tftp://127.0.0.1:PORT/", "ssh://127.0.0.1:PORT/",
		"ws://pay.example/", "wss://pay.example/", "unix:///var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/", "https+unix://x/", "jar:https://pay.example!/",
		"javascript:alert(1)", "data:text/plain,x", "mailto:a@pay.example", "//pay.example/", "pay.example", "pay.example:443", "/path", "httpss://pay.example/",
		"https :// pay.example/", "h\u2102ttps://pay.example/", "about:blank", "blob:https://pay.example/x", "view-source:https://pay.example/", "netdoc:///etc/passwd", "smb://127.0.0.1/x",
	} {
		c.define("the scheme of "+url, url)
	}
}

func (c *corpus) ports() {
	for _, port := range []string{
		"0", "1", "21", "22", "23", "25", "53", "80", "110", "111", "135", "139", "143", "389", "442", "444", "445", "465", "514", "587", "636", "873", "993", "995", "1023",
		"65536", "70000", "99999", "4294967739", "-1", "+443", "0443", "00443", "443a", "0x1bb", "4e2", " 443", "https", "\uff14\uff14\uff13", "",
	} {
		c.define("the port "+port, "https://pay.example:"+port+"/")
	}
}
