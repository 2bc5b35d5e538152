package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
)

// profile is how one server is called in one role. Only the file ever holds Key.
type profile struct {
	URL          string `json:"url"`
	Key          string `json:"key"`
	HeaderPrefix string `json:"header_prefix,omitempty"`
	CAFile       string `json:"ca_file,omitempty"`
	InClear      bool   `json:"in_clear,omitempty"`
}

// profiles is what the file holds.
type profiles struct {
	InUse    string             `json:"in_use,omitempty"`
	Profiles map[string]profile `json:"profiles"`
}

// profileError says what is wrong with the file of profiles.
type profileError struct{ words string }

func (e *profileError) Error() string { return e.words }

var (
	errProfilesOpen   = &profileError{"the file of profiles holds keys and others may read it: make its mode 0600, and give out new keys if they could have been read"}
	errProfilesFile   = &profileError{"the file of profiles cannot be read or written"}
	errProfilesForm   = &profileError{"the file of profiles is not in its form: put it right, or remove it and add the profiles again"}
	errNoProfile      = &usageError{errors.New("there is no such profile; 'tokenkeep profile list' lists them")}
	errProfileThere   = &usageError{errors.New("there is a profile of this name: add --replace to put this one in its place")}
	errProfileName    = &usageError{errors.New("the name of a profile is of 1 to 50 letters, digits, dots, dashes and underscores, and does not begin with a dash")}
	errNoConfigFolder = &profileError{"there is no folder for the configuration of users: set HOME or XDG_CONFIG_HOME"}
)

var profileName = regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._-]{0,49}$`)

func profilesPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", errNoConfigFolder
	}
	return filepath.Join(dir, "tokenkeep", "profiles.json"), nil
}

// readProfiles returns what the file holds; nothing when there is none.
func readProfiles() (profiles, error) {
	none := profiles{Profiles: map[string]profile{}}
	path, err := profilesPath()
	if err != nil {
		return none, nil // whoever has no home has no profiles
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, errProfilesFile
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return none, errProfilesFile
	}
	if info.Mode().Perm()&0o077 != 0 {
		return none, errProfilesOpen
	}
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return none, errProfilesFile
	}
	list := none
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields() // a misspelt ca_file must not be passed over
	if d.Decode(&list) != nil || list.Profiles == nil {
		return none, errProfilesForm
	}
	return list, nil
}

// write puts a new file in the place of the old one, for its owner alone.
func (l profiles) write() error {
	path, err := profilesPath()
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return errProfilesFile
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".profiles-*") // of mode 0600
	if err != nil {
		return errProfilesFile
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errProfilesFile
	}
	return nil
}

// chosenProfile returns the profile that a flag or a variable names, or else
// the one in use; the zero profile when there is none.
func chosenProfile(flag string) (profile, error) {
	list, err := readProfiles()
	if err != nil {
		return profile{}, err
	}
	name := cmp.Or(flag, os.Getenv("TOKENKEEP_PROFILE"), list.InUse)
	p, there := list.Profiles[name]
	if !there && name != "" {
		return profile{}, errNoProfile
	}
	return p, nil
}

// completeProfiles lets shells complete the names of profiles.
func completeProfiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	list, err := readProfiles()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(list.Profiles)), cobra.ShellCompDirectiveNoFileComp
}

// completeOneProfile does so for a first argument.
func completeOneProfile(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeProfiles(c, args, typed)
}

func profileCommand() *cobra.Command {
	return group("profile", "Keep addresses and keys of servers under names, for the commands that call the API",
		profileAddCommand(), profileListCommand(), profileUseCommand(), profileRemoveCommand())
}

func profileAddCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "add NAME", Short: "Keep an address and a key under a name",
		Long: `Reads a key from standard input, or from a file, and keeps it with the address in
profiles.json in the folder tokenkeep of your configuration, which only you can
read. The first profile is the one in use until 'tokenkeep profile use' names
another.`,
		Example: `  tokenkeep profile add shop --url https://vault.example < key
  tokenkeep profile add staging --url https://vault.staging.example --ca-file ca.pem --key-file key --use`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	var p profile
	c.Flags().StringVar(&p.URL, "url", "", "address of the server")
	_ = c.MarkFlagRequired("url")
	keyFile := c.Flags().String("key-file", "-", "file with the API key; - is standard input")
	c.Flags().StringVar(&p.HeaderPrefix, "header-prefix", "", "prefix of the server's own headers (default SVC)")
	c.Flags().StringVar(&p.CAFile, "ca-file", "", "file with the certificates of authorities to trust, in PEM (default: those of the machine)")
	c.Flags().BoolVar(&p.InClear, "in-clear", false, "call an http address that is not on this machine")
	use := c.Flags().Bool("use", false, "use it from now on")
	replace := c.Flags().Bool("replace", false, "put it in the place of the profile of this name")
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if !profileName.MatchString(args[0]) {
			return errProfileName
		}
		list, err := readProfiles()
		if err != nil {
			return err
		}
		if _, there := list.Profiles[args[0]]; there && !*replace {
			return errProfileThere
		}
		if p.CAFile != "" {
			if p.CAFile, err = filepath.Abs(p.CAFile); err != nil {
				return errCAFile
			}
		}
		key, err := namedInput(c, *keyFile, "the key")
		if err != nil {
			return err
		}
		if p.Key = strings.TrimSpace(string(key)); p.Key == "" {
			return errNoKey
		}
		if _, err := checkedAddress(p.URL, p.InClear); err != nil {
			return err
		}
		if _, err := (way{p.URL, p.Key, p.HeaderPrefix, p.CAFile}).open(); err != nil {
			return err
		}
		list.Profiles[args[0]] = p
		if *use || list.InUse == "" {
			list.InUse = args[0]
		}
		if err := list.write(); err != nil {
			return err
		}
		return show(c, *asJSON, api.Health{Status: "added"}, func(w io.Writer, _ any) {
			printf(w, "The profile is kept; '%s' is the one in use.\n", list.InUse)
		})
	}
	return c
}

// shownProfile is a profile without its key.
type shownProfile struct {
	Name         string `json:"name"`
	InUse        bool   `json:"in_use"`
	URL          string `json:"url"`
	KeyKind      string `json:"key_kind"`
	HeaderPrefix string `json:"header_prefix"`
	CAFile       string `json:"ca_file,omitempty"`
}

// kinds are the parts of keys that say whose they are.
var kinds = map[string]string{"pub": "public", "pvt": "private", "mgt": "management", "sess": "session"}

func profileListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the profiles, never their keys",
		Example: "  tokenkeep profile list",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		list, err := readProfiles()
		if err != nil {
			return err
		}
		all := []shownProfile{}
		for _, name := range slices.Sorted(maps.Keys(list.Profiles)) {
			p, kind := list.Profiles[name], "other"
			if parts := strings.Split(p.Key, "_"); len(parts) == 4 && kinds[parts[2]] != "" {
				kind = kinds[parts[2]]
			}
			all = append(all, shownProfile{name, name == list.InUse, p.URL, kind, cmp.Or(p.HeaderPrefix, api.DefaultPrefix), p.CAFile})
		}
		return show(c, *asJSON, all, func(w io.Writer, _ any) {
			printf(w, "IN USE\tNAME\tADDRESS\tKEY\tPREFIX\tAUTHORITIES\n")
			for _, p := range all {
				mark := ""
				if p.InUse {
					mark = "*"
				}
				printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", mark, plain(p.Name), plain(p.URL), p.KeyKind, plain(p.HeaderPrefix), plain(p.CAFile))
			}
		})
	}
	return c
}

func profileUseCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "use NAME", Short: "Call with this profile from now on",
		Example: "  tokenkeep profile use staging",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeOneProfile,
	}
	return changeProfiles(c, "in use", func(list *profiles, name string) { list.InUse = name })
}

func profileRemoveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "remove NAME", Short: "Forget a profile with its key; the key stays valid",
		Example: "  tokenkeep profile remove staging",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeOneProfile,
	}
	return changeProfiles(c, "removed", func(list *profiles, name string) {
		delete(list.Profiles, name)
		if list.InUse == name {
			list.InUse = ""
		}
	})
}

func changeProfiles(c *cobra.Command, done string, change func(list *profiles, name string)) *cobra.Command {
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		list, err := readProfiles()
		if err != nil {
			return err
		}
		if _, there := list.Profiles[args[0]]; !there {
			return errNoProfile
		}
		change(&list, args[0])
		if err := list.write(); err != nil {
			return err
		}
		return show(c, *asJSON, api.Health{Status: done}, func(w io.Writer, _ any) { printf(w, "The profile is %s.\n", done) })
	}
	return c
}
