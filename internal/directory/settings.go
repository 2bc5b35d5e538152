package directory

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Settings are what a tenant has chosen, with the defaults of what it has not.
// DefaultSettings and SettingsOf return them. The settings that let callers see
// or do more are not here: see WideningOf.
type Settings struct {
	FingerprintTokens              bool
	DeduplicateTokens              bool
	DisableEphemeralProxy          bool
	DisableAnonymousDetokenization bool
	NumericIDs                     bool
	CVCRetention                   time.Duration
	ExportApproval                 bool

	// widening is what the row says, which anyone who can write to the database
	// may have changed.
	widening Widening
}

// Widening are the settings that let callers see or do more than the rules say.
// The zero value lets them do nothing more. Its JSON form is sealed with the
// secrets of the tenant.
type Widening struct {
	UncappedSessions   bool `json:"uncapped_sessions,omitempty"`
	BlindDeduplication bool `json:"blind_deduplication,omitempty"`
	MaskedFingerprints bool `json:"masked_fingerprints,omitempty"`
	// Trusted are the ids of keys whose exports are trusted, with commas between.
	Trusted string `json:"trusted_export_keys,omitempty"`
}

// TrustedExports returns the ids of the keys whose exports are trusted.
func (w Widening) TrustedExports() []string {
	if w.Trusted == "" {
		return nil
	}
	return strings.Split(w.Trusted, ",")
}

// and returns what is on in both.
func (w Widening) and(v Widening) Widening {
	if w.Trusted != v.Trusted {
		w.Trusted = ""
	}
	return Widening{
		Trusted:            w.Trusted,
		UncappedSessions:   w.UncappedSessions && v.UncappedSessions,
		BlindDeduplication: w.BlindDeduplication && v.BlindDeduplication,
		MaskedFingerprints: w.MaskedFingerprints && v.MaskedFingerprints,
	}
}

// Setting is the row of a setting: what its text may be, and the field of
// Settings that it is read into.
type Setting struct {
	Name    string
	Doc     string
	Default string
	refusal string
	read    func(into *Settings, text string) bool // false for a text that it may not have
}

// settings are all that there are; see SettingRows.
var settings = []Setting{
	choice("fingerprint_tokens", "Whether every token gets a fingerprint, or only those that ask for one.", "true",
		func(s *Settings) *bool { return &s.FingerprintTokens }),
	choice("deduplicate_tokens", "Whether a create that would repeat a token answers with the existing one.", "false",
		func(s *Settings) *bool { return &s.DeduplicateTokens }),
	choice("disable_ephemeral_proxy", "Whether calls that name their destination in a header are refused.", "false",
		func(s *Settings) *bool { return &s.DisableEphemeralProxy }),
	choice("disable_anonymous_detokenization", "Whether proxies that ask for no key put no protected values in, unless they have an application.", "false",
		func(s *Settings) *bool { return &s.DisableAnonymousDetokenization }),
	choice("uncapped_sessions", "Whether a session may hold more than the application that authorized it.", "false",
		func(s *Settings) *bool { return &s.widening.UncappedSessions }),
	choice("blind_deduplication", "Whether callers who may not see fingerprints deduplicate too. Callers who know the id of a token can then test guesses of its data.", "false",
		func(s *Settings) *bool { return &s.widening.BlindDeduplication }),
	choice("masked_fingerprints", "Whether callers who see the mask of a token see its fingerprint too. With a mask and a fingerprint a card number can be guessed.", "false",
		func(s *Settings) *bool { return &s.widening.MaskedFingerprints }),
	choice("numeric_ids", "Whether ids, containers and metadata keys may look like card numbers.", "false",
		func(s *Settings) *bool { return &s.NumericIDs }),
	choice("export_approval", "Whether an export of tokens takes the approval of another application.", "false",
		func(s *Settings) *bool { return &s.ExportApproval }),
	{
		Name: "trusted_export_keys", Doc: "Keys of other tenants whose exports may bring ids that look like card numbers: up to 10 key ids of 64 hexadecimal digits, with commas between, or none.",
		Default: "none", refusal: "must be up to 10 ids of 64 hexadecimal digits, with commas between, or none",
		read: func(s *Settings, text string) bool {
			if text == "none" {
				return true
			}
			s.widening.Trusted = text
			ids := s.widening.TrustedExports()
			return len(ids) > 0 && len(ids) <= 10 && !slices.ContainsFunc(ids, func(id string) bool { return len(id) != 64 || strings.Trim(id, "0123456789abcdef") != "" })
		},
	},
	{
		Name: "cvc_retention", Doc: "How long a card's security code is kept; at most an hour.", Default: "1h",
		refusal: "must be a duration from 1m to 1h",
		read: func(s *Settings, text string) bool {
			d, err := time.ParseDuration(text)
			s.CVCRetention = d
			return err == nil && d >= time.Minute && d <= keyring.Retention
		},
	},
}

// choice is the row of a setting that is on or off.
func choice(name, doc, fallback string, field func(*Settings) *bool) Setting {
	return Setting{Name: name, Doc: doc, Default: fallback, refusal: `must be "true" or "false"`, read: func(s *Settings, text string) bool {
		*field(s) = text == "true"
		return text == "true" || text == "false"
	}}
}

// SettingRows returns the rows, for the documentation.
func SettingRows() []Setting { return slices.Clone(settings) }

// settingTexts has the text of every setting: the one that the tenant has
// chosen, or the default.
func settingTexts(chosen map[string]string) map[string]string {
	all := make(map[string]string, len(settings))
	for _, row := range settings {
		all[row.Name] = row.Default
		if text, ok := chosen[row.Name]; ok {
			all[row.Name] = text
		}
	}
	return all
}

// parseSettings reads the texts of all settings, and calls refused for each
// that has a text it may not have.
func parseSettings(chosen map[string]string, refused func(Setting)) (s Settings) {
	texts := settingTexts(chosen)
	for _, row := range settings {
		if !row.read(&s, texts[row.Name]) {
			refused(row)
		}
	}
	return s
}

// DefaultSettings are those of a tenant that has chosen nothing.
func DefaultSettings() Settings { return parseSettings(nil, func(Setting) {}) }

var errSetting = errors.New("the row of a tenant has a setting that cannot be read")

// SettingsOf reads the settings in the row of a tenant. A text that no tenant
// could have chosen is an error. Names that this release does not know are left
// alone: a newer one may have written them.
func SettingsOf(t store.Tenant) (s Settings, err error) {
	s = parseSettings(t.Settings, func(Setting) { err = errSetting })
	return s, err
}

// WideningOf returns which of the settings that let callers see or do more are
// on: the tenant's row has them, and so does what was sealed when they were
// chosen. Anyone who can write to the database must not turn them on.
func WideningOf(t store.Tenant, keys *keyring.Keys) (Widening, error) {
	s, err := SettingsOf(t)
	if err != nil || s.widening == (Widening{}) {
		return Widening{}, err
	}
	kept, err := openSecrets(keys, t.Secrets)
	if err != nil {
		return Widening{}, fmt.Errorf("open secrets: %w", err)
	}
	return s.widening.and(kept.Widening), nil
}

// checkSettings reads the settings that a caller has sent, and adds what is
// wrong with them to f.
func checkSettings(f *fault.Fields, chosen map[string]string) Settings {
	parsed := parseSettings(chosen, func(row Setting) { f.Add("settings."+row.Name, row.refusal) })
	known := 0
	for _, row := range settings {
		if _, ok := chosen[row.Name]; ok {
			known++
		}
	}
	if known < len(chosen) {
		f.Add("settings", "holds a setting that does not exist")
	}
	return parsed
}
