package apidoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tokenkeep/tokenkeep/api"
)

// Describe returns the description of the API in YAML, as a server with this
// header prefix and of this release serves it.
func Describe(prefix, release string) []byte {
	text := string(api.OpenAPI)
	if release != "" {
		head, rest, _ := strings.Cut(text, "\n  version: ")
		_, rest, _ = strings.Cut(rest, "\n")
		text = head + "\n  version: " + strconv.QuoteToASCII(release) + "\n" + rest
	}
	if prefix = strings.ToUpper(prefix); prefix == "" {
		prefix = api.DefaultPrefix
	}
	// The names stand in keys, values and sentences. The document has these
	// letters nowhere else, and a prefix holds none that mean something in YAML.
	return []byte(strings.NewReplacer(
		api.DefaultPrefix, prefix, strings.ToLower(api.DefaultPrefix)+"-", strings.ToLower(prefix)+"-",
	).Replace(text))
}

// toJSON writes a YAML document as JSON, its members in the order in which
// they stand: it is the order in which people read them.
func toJSON(text []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("apidoc: read the description: %w", err)
	}
	if len(root.Content) != 1 {
		return nil, errors.New("apidoc: the description is not one document")
	}
	var out bytes.Buffer
	if err := writeJSON(&out, root.Content[0]); err != nil {
		return nil, fmt.Errorf("apidoc: write the description: %w", err)
	}
	return out.Bytes(), nil
}

func writeJSON(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		return writeItems(out, '{', '}', n.Content, 2)
	case yaml.SequenceNode:
		return writeItems(out, '[', ']', n.Content, 1)
	case yaml.ScalarNode:
		var v any
		if err := n.Decode(&v); err != nil {
			return err
		}
		b, err := json.Marshal(v)
		out.Write(b)
		return err
	}
	return fmt.Errorf("line %d is neither a mapping, a sequence nor a scalar", n.Line)
}

// writeItems writes the items between two brackets; in a mapping two nodes are
// an item, and names are text whatever they look like.
func writeItems(out *bytes.Buffer, begin, end byte, nodes []*yaml.Node, width int) error {
	out.WriteByte(begin)
	for i := 0; i < len(nodes); i += width {
		if i > 0 {
			out.WriteByte(',')
		}
		if width == 2 {
			name, err := json.Marshal(nodes[i].Value)
			if err != nil {
				return err
			}
			out.Write(name)
			out.WriteByte(':')
		}
		if err := writeJSON(out, nodes[i+width-1]); err != nil {
			return err
		}
	}
	out.WriteByte(end)
	return nil
}
