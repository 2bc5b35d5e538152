package token

import "strings"

// brands says which numbers are of which brand: those that begin with
// something from first to last. Of several that fit, the longest counts.
var brands = []struct{ brand, first, last string }{
	{"visa", "4", "4"},
	{"mastercard", "51", "55"},
	{"mastercard", "2221", "2720"},
	{"american-express", "34", "34"},
	{"american-express", "37", "37"},
	{"diners-club", "300", "305"},
	{"diners-club", "309", "309"},
	{"diners-club", "36", "36"},
	{"diners-club", "38", "39"},
	{"discover", "6011", "6011"},
	{"discover", "644", "649"},
	{"discover", "65", "65"},
	{"jcb", "1800", "1800"},
	{"jcb", "2131", "2131"},
	{"jcb", "3528", "3589"},
	{"unionpay", "62", "62"},
	{"unionpay", "8100", "8171"},
	{"mir", "2200", "2204"},
	{"maestro", "493698", "493698"},
	{"maestro", "5000", "5099"},
	{"maestro", "56", "59"},
	{"maestro", "6", "6"},
	{"elo", "401178", "401179"},
	{"elo", "431274", "431274"},
	{"elo", "438935", "438935"},
	{"elo", "451416", "451416"},
	{"elo", "457393", "457393"},
	{"elo", "457631", "457632"},
	{"elo", "504175", "504175"},
	{"elo", "506699", "506778"},
	{"elo", "509000", "509999"},
	{"elo", "627780", "627780"},
	{"elo", "636297", "636297"},
	{"elo", "636368", "636368"},
	{"elo", "650031", "650033"},
	{"elo", "650035", "650051"},
	{"elo", "650405", "650439"},
	{"elo", "650485", "650538"},
	{"elo", "650541", "650598"},
	{"elo", "650700", "650718"},
	{"elo", "650720", "650727"},
	{"elo", "650901", "650978"},
	{"elo", "651652", "651679"},
	{"elo", "655000", "655019"},
	{"elo", "655021", "655058"},
	{"hiper", "637095", "637095"},
	{"hiper", "637568", "637568"},
	{"hiper", "637599", "637599"},
	{"hiper", "637609", "637609"},
	{"hiper", "637612", "637612"},
	{"hipercard", "606282", "606282"},
}

// brandOf returns the brand of a card number; "" when it is of none that we know.
func brandOf(number string) string {
	found, length := "", 0
	for _, b := range brands {
		if n := len(b.first); n > length && len(number) >= n && strings.Compare(number[:n], b.first) >= 0 && strings.Compare(number[:n], b.last) <= 0 {
			found, length = b.brand, n
		}
	}
	return found
}
