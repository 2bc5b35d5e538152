package exportfile_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/exportfile"
)

// file writes an export of two segments.
func file(t testing.TB) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := exportfile.NewWriter(&b, exportfile.Header{
		ExportID: "e", TenantID: "t", PublicKey: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
	}, func(message []byte) ([]byte, error) { return ed25519.Sign(private, message), nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, lines := range []string{`{"kind":"token","id":"a"}` + "\n" + `{"kind":"token","id":"b"}` + "\n", `{"kind":"token","id":"c"}` + "\n"} {
		if err := w.WriteSegment([]byte(lines), int64(strings.Count(lines, "\n"))); err != nil {
			t.Fatal(err)
		}
	}
	if end, err := w.Close(); err != nil || end.Tokens != 3 || end.Segments != 2 {
		t.Fatalf("Close = %+v, %v", end, err)
	}
	return b.String()
}

func verify(text string) (exportfile.Header, exportfile.End, error) {
	rest := text
	return exportfile.Verify(func() ([]byte, error) {
		if rest == "" {
			return nil, io.EOF
		}
		line, after, _ := strings.Cut(rest, "\n")
		rest = after
		return []byte(line + "\n"), nil
	})
}

func TestAnExportVerifies(t *testing.T) {
	header, end, err := verify(file(t))
	if err != nil || header.TenantID != "t" || end.Tokens != 3 || end.KeyID != exportfile.KeyID(header.PublicKey) {
		t.Errorf("Verify = %+v, %+v, %v", header, end, err)
	}
}

func TestWhateverIsChangedIsFound(t *testing.T) {
	text := file(t)
	lines := strings.SplitAfter(text, "\n")
	lines = lines[:len(lines)-1]
	join := func(order ...int) string {
		var b strings.Builder
		for _, i := range order {
			_, _ = b.WriteString(lines[i])
		}
		return b.String()
	}
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"nothing":                  {"", exportfile.ErrNotExport},
		"another file":             {"{}\n", exportfile.ErrNotExport},
		"a header with no key":     {`{"kind":"export","format":"tokenkeep token export 1"}` + "\n", exportfile.ErrNotExport},
		"no end":                   {join(0, 1, 2, 3, 4, 5), exportfile.ErrCutOff},
		"only a header":            {lines[0], exportfile.ErrCutOff},
		"no first segment":         {join(0, 4, 5, 6), exportfile.ErrChanged},
		"no last segment":          {join(0, 1, 2, 3, 6), exportfile.ErrChanged},
		"segments exchanged":       {join(0, 4, 5, 1, 2, 3, 6), exportfile.ErrChanged},
		"tokens exchanged":         {join(0, 2, 1, 3, 4, 5, 6), exportfile.ErrChanged},
		"a token after the last":   {join(0, 1, 2, 3, 4, 5, 4, 6), exportfile.ErrChanged},
		"something after the end":  {text + lines[1], exportfile.ErrChanged},
		"a line of no kind":        {join(0) + "{}\n" + join(1, 2, 3, 4, 5, 6), exportfile.ErrChanged},
		"another value":            {strings.Replace(text, `"id":"b"`, `"id":"x"`, 1), exportfile.ErrChanged},
		"another tenant":           {strings.Replace(text, `"tenant_id":"t"`, `"tenant_id":"u"`, 1), exportfile.ErrChanged},
		"another recipient":        {strings.Replace(text, `"recipient":""`, `"recipient":"x"`, 1), exportfile.ErrChanged},
		"a segment that is broken": {strings.Replace(text, `{"kind":"segment","number":1`, `{"kind":"segment","number":"1"`, 1), exportfile.ErrChanged},
		"an end that is broken":    {strings.Replace(text, `"segments":2`, `"segments":"2"`, 1), exportfile.ErrChanged},
		"another count":            {strings.Replace(text, `"segments":2`, `"segments":3`, 1), exportfile.ErrChanged},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := verify(test.text); !errors.Is(err, test.want) {
				t.Errorf("Verify = %v, want %v", err, test.want)
			}
		})
	}
	// The signatures of another export do not fit.
	other := strings.SplitAfter(file(t), "\n")
	if _, _, err := verify(lines[0] + other[1] + other[2] + other[3] + lines[4] + lines[5] + lines[6]); !errors.Is(err, exportfile.ErrChanged) {
		t.Errorf("with a segment of another export = %v, want ErrChanged", err)
	}
}

// tokens are the lines of a file that hold tokens.
func tokens(text string) (list string) {
	for line := range strings.Lines(text) {
		if exportfile.KindOf([]byte(line)) == exportfile.KindToken {
			list += line
		}
	}
	return list
}

func FuzzVerify(f *testing.F) {
	text := file(f)
	header, _, err := verify(text)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(strings.Replace(text, `"id":"b"`, `"id":"x"`, 1))
	f.Fuzz(func(t *testing.T, changed string) {
		// Without the key, nobody signs other tokens with it.
		got, _, err := verify(changed)
		if err == nil && got.PublicKey == header.PublicKey && tokens(changed) != tokens(text) {
			t.Errorf("other tokens verify: %q", changed)
		}
	})
}
