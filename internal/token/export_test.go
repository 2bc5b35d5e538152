package token

import (
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// What the fuzz targets look at from inside.

func ParseQuery(text string) error {
	_, err := parseQuery(text)
	return err
}

func Tells(id string, data jsonvalue.Value) bool {
	return namer{scope: expression.Scope{Data: data}}.tells(id)
}

// Walk finds what becomes tokens and puts numbered ids in their place.
func Walk(body jsonvalue.Value) (out jsonvalue.Value, tokens int, err error) {
	found, err := walk(body)
	if err != nil {
		return out, 0, err
	}
	return replace(body, found, make([]Token, len(found))), len(found), nil
}

func Fold(s string) string { return fold(s) }

// BrandOf returns the brand of a card number.
func BrandOf(number string) string { return brandOf(number) }

// BrandRange is a row of the table of brands.
type BrandRange struct{ Brand, First, Last string }

// BrandRanges returns the table of brands.
func BrandRanges() (list []BrandRange) {
	for _, b := range brands {
		list = append(list, BrandRange{b.brand, b.first, b.last})
	}
	return list
}

// IsRoutingNumber reports whether a text is a routing number.
func IsRoutingNumber(s string) bool { return isRoutingNumber(s) }
