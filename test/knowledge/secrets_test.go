package knowledge_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// pair is a secret: the value that it has in the first tenant, and the one in
// the second. Both look the same to everybody who sees them masked.
type pair [2]string

func luhnValid(number string) bool {
	sum := 0
	for i := range len(number) {
		digit := int(number[len(number)-1-i] - '0')
		if i%2 == 1 {
			if digit *= 2; digit > 9 {
				digit -= 9
			}
		}
		sum += digit
	}
	return sum%10 == 0
}

// testNumbers are the well-known test numbers that the pairs are made from:
// the beginning, which a mask may show, the length, and the last four digits.
var testNumbers = []struct {
	bin    string
	length int
	last4  string
}{
	{"42424242", 16, "4242"},
	{"40000000", 16, "0002"},
	{"55555555", 16, "4444"},
	{"378282", 15, "0005"},
}

// cardNumbers returns valid numbers that share their beginning and their end.
func cardNumbers(r *rand.Rand, kind, n int) []string {
	c := testNumbers[kind%len(testNumbers)]
	width := c.length - len(c.bin) - len(c.last4)
	limit := 1
	for range width {
		limit *= 10
	}
	var list []string
	for _, middle := range r.Perm(limit) {
		number := c.bin + fmt.Sprintf("%0*d", width, middle) + c.last4
		if luhnValid(number) {
			list = append(list, number)
			if len(list) == n {
				break
			}
		}
	}
	return list
}

// cardPair returns two valid numbers that differ in the first digit behind
// their common beginning.
func cardPair(r *rand.Rand, kind int) pair {
	list := cardNumbers(r, kind, 50)
	at := len(testNumbers[kind%len(testNumbers)].bin)
	for _, other := range list[1:] {
		if other[at] != list[0][at] {
			return pair{list[0], other}
		}
	}
	panic("no two numbers differ") // 50 of a thousand do
}

func digits(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(byte('0' + r.IntN(10)))
	}
	return b.String()
}

func letters(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte("abcdefghjkmnpqrstuvwxyz"[r.IntN(23)])
	}
	return b.String()
}

// tail returns two different texts with the same ending.
func tail(make func() string, end string) pair {
	a, b := make(), make()
	for a == b {
		b = make()
	}
	return pair{a + end, b + end}
}

// symbols are the secrets that sequences name, in angle brackets: <S0> is the
// value, which differs between the two tenants; <S0a> and <S0b> are both values
// in both tenants, which is what an attacker guesses. <K0> and so on are texts
// of high entropy that are the same in both tenants.
func symbols(r *rand.Rand) map[string]pair {
	first := r.IntN(len(testNumbers))
	m := map[string]pair{
		"S0": cardPair(r, first),
		"S1": cardPair(r, first+1+r.IntN(3)), // of another kind, so that no value is one of S0
		"A0": tail(func() string { return "7" + digits(r, 5) }, digits(r, 4)),
		"T0": tail(func() string { return letters(r, 20) }, letters(r, 4)),
		"N0": tail(func() string { return "9" + digits(r, 2) + "-" + digits(r, 2) + "-" }, digits(r, 4)),
		"C0": tail(func() string { return digits(r, 3) }, ""),
	}
	for i := range 6 {
		text := "canary-" + letters(r, 14)
		m[fmt.Sprint("K", i)] = pair{text, text}
	}
	return m
}
