package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/config"
)

func TestInitWritesWhatAServerStartsWith(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc with a space")
	data := filepath.Join(t.TempDir(), "data")
	got := given(t, "", "init", "--dir", dir, "--data", data)
	if got.code != 0 || got.err != "" || !strings.Contains(got.out, "tokenkeep serve --config") {
		t.Fatalf("init = %+v", got)
	}
	file, kek := filepath.Join(dir, "tokenkeep.yaml"), filepath.Join(dir, "kek")
	if info, err := os.Stat(kek); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file is %v, %v, want mode 0600", info, err)
	}
	conf, err := config.Load(file, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if conf.Data != data || conf.KEKFile != kek {
		t.Errorf("the file names %s and %s, want %s and %s", conf.Data, conf.KEKFile, data, kek)
	}
	before, err := os.ReadFile(kek)
	if err != nil {
		t.Fatal(err)
	}
	if got := given(t, "", "init", "--dir", dir); got.code != 1 || got.err != "tokenkeep: "+errInitialized.Error()+"\n" {
		t.Errorf("init again = %+v", got)
	}
	if after, err := os.ReadFile(kek); err != nil || string(after) != string(before) {
		t.Errorf("init again changed the key, or lost it: %v", err)
	}
}

// TestTheDefaultsOfInitAreTheDefaults removes the comment signs: what is left
// must load, and change nothing.
func TestTheDefaultsOfInitAreTheDefaults(t *testing.T) {
	text := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(string(settingsFile(nil)), "$1")
	file := mustWrite(t, filepath.Join(t.TempDir(), "all.yaml"), text)
	all, err := config.Load(file, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	none, err := config.Load("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range config.Settings() {
		listed := strings.Contains(text, "\n"+s.Name+": ")
		if listed == s.Secret {
			t.Errorf("%s: in the file is %t, secret is %t", s.Name, listed, s.Secret)
		}
		if got, want := s.Value(all), s.Value(none); got != want {
			t.Errorf("%s = %q, want the default %q", s.Name, got, want)
		}
	}
}
