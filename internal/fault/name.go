package fault

import "strings"

// Names is a list of the names that are right in some place: the fields of
// card data, the permissions, the filters. All of it are constants of the
// program.
type Names struct {
	// What the names are of: "field", "permission".
	What string
	// Known are the names, and List introduces them: a sentence such as "card
	// data has", to which they are added, or one that says where to find them,
	// if there are too many to add.
	Known []string
	List  string
	Long  bool
}

// Unknown is the message for a name that is not in the list. It repeats the
// name where that is safe (see Repeatable), and says what would be right.
func (n Names) Unknown(name string) string {
	message := "unknown " + n.What
	if Repeatable(name) {
		message += ` "` + name + `"`
		if near, ok := Nearest(name, n.Known); ok && n.Long {
			return message + `; did you mean "` + near + `"?`
		}
	}
	return message + n.listed()
}

func (n Names) listed() string {
	if n.Long {
		return "; " + n.List
	}
	return "; " + n.List + " " + strings.Join(n.Known, ", ")
}

// AddUnknown notes under path that a name is not in a list.
func (f *Fields) AddUnknown(path, code, name string, n Names) {
	message := n.Unknown(name)
	f.AddCode(path, code, message)
	if f.unnamed == nil {
		f.unnamed = make(map[string]string)
	}
	f.unnamed[message] = n.Unknown("")
}

// Unknown is the fault for a name that is not in a list, and not in a field of
// its own either.
func Unknown(kind Kind, code, name string, n Names) *Fault {
	return &Fault{kind: kind, code: code, detail: n.Unknown(name)}
}

// Nearest returns the known name that is closest in spelling, if one is close:
// at most a third of its letters differ.
func Nearest(name string, known []string) (string, bool) {
	best, least := "", maxNameLength+1
	if len(name) > maxNameLength {
		return "", false
	}
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best, best != "" && least <= max(1, len(best)/3)
}

// distance counts the letters to insert, delete, replace or swap to make a from b.
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
