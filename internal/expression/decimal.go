package expression

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

var (
	errNumber   = fault.New(fault.Invalid, "a filter for numbers was given something else")
	errNumerous = fault.New(fault.Invalid, "a number has too many digits to calculate with")
	errZero     = fault.New(fault.Invalid, "a number cannot be divided by zero")
)

// maxDigits bounds the numbers that are calculated with, before and after the
// point. Numbers that only pass through have no bound.
const maxDigits = 400

// decimal is an exact number: coefficient / 10^scale.
type decimal struct {
	coefficient *big.Int
	scale       int // never negative
}

func parseDecimal(text string) (decimal, error) {
	mantissa, exponent := text, 0
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		var err error
		if exponent, err = strconv.Atoi(text[at+1:]); err != nil || exponent > maxDigits || exponent < -maxDigits {
			return decimal{}, errNumerous
		}
		mantissa = text[:at]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if len(whole)+len(fraction) > maxDigits {
		return decimal{}, errNumerous
	}
	c, ok := new(big.Int).SetString(whole+fraction, 10)
	if !ok {
		return decimal{}, errNumber
	}
	d := decimal{c, len(fraction) - exponent}
	if d.scale < 0 {
		d = decimal{new(big.Int).Mul(c, tenTo(-d.scale)), 0}
	}
	return d, nil
}

func tenTo(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// text writes the number out in full, with as many places as its scale.
func (d decimal) text() string {
	s := new(big.Int).Abs(d.coefficient).String()
	if d.scale > 0 {
		if short := d.scale + 1 - len(s); short > 0 {
			s = strings.Repeat("0", short) + s
		}
		s = s[:len(s)-d.scale] + "." + s[len(s)-d.scale:]
	}
	if d.coefficient.Sign() < 0 {
		s = "-" + s
	}
	return s
}

// size is about how many bytes the number takes, and its text.
func (d decimal) size() int {
	if d.coefficient == nil {
		return 0
	}
	return d.coefficient.BitLen()/2 + d.scale
}

// cost is what calculating with the number costs: multiplying, dividing and
// writing it out grow with the square of its digits.
func (d decimal) cost() int {
	n := d.size()
	return n + n*n/512
}

// excessive reports whether the number has outgrown what may be calculated with.
func (d decimal) excessive() bool {
	return d.scale > 2*maxDigits || d.coefficient.BitLen() > 4*2*maxDigits
}

// at gives the coefficient at a larger scale.
func (d decimal) at(scale int) *big.Int {
	return new(big.Int).Mul(d.coefficient, tenTo(scale-d.scale))
}

// aligned gives both coefficients at the larger of the two scales.
func aligned(a, b decimal) (x, y *big.Int, scale int) {
	scale = max(a.scale, b.scale)
	return a.at(scale), b.at(scale), scale
}

func (d decimal) plus(e decimal) decimal {
	x, y, scale := aligned(d, e)
	return decimal{x.Add(x, y), scale}
}

func (d decimal) minus(e decimal) decimal {
	x, y, scale := aligned(d, e)
	return decimal{x.Sub(x, y), scale}
}

func (d decimal) times(e decimal) decimal {
	return decimal{new(big.Int).Mul(d.coefficient, e.coefficient), d.scale + e.scale}
}

func (d decimal) compare(e decimal) int {
	x, y, _ := aligned(d, e)
	return x.Cmp(y)
}

// dividedBy rounds two integers down, and gives up to 20 places otherwise. e
// is not zero.
func (d decimal) dividedBy(e decimal) decimal {
	x, y, scale := aligned(d, e)
	if scale == 0 {
		return decimal{floorDivide(x, y), 0}
	}
	const places = 20
	q := decimal{x.Mul(x, tenTo(places+1)).Quo(x, y), places + 1}.rounded(places)
	for q.scale > 1 {
		shorter, rest := new(big.Int).QuoRem(q.coefficient, big.NewInt(10), new(big.Int))
		if rest.Sign() != 0 {
			break
		}
		q = decimal{shorter, q.scale - 1}
	}
	return q
}

// modulo has the sign of e, which is not zero.
func (d decimal) modulo(e decimal) decimal {
	x, y, scale := aligned(d, e)
	q := floorDivide(x, y)
	return decimal{x.Sub(x, q.Mul(q, y)), scale}
}

func floorDivide(x, y *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(x, y, new(big.Int))
	if r.Sign() != 0 && r.Sign() != y.Sign() {
		q.Sub(q, big.NewInt(1))
	}
	return q
}

// rounded has at most so many places, halves away from zero. A negative count
// rounds to tens, hundreds and so on.
func (d decimal) rounded(places int) decimal {
	if d.scale <= places {
		return d
	}
	unit := tenTo(d.scale - places)
	half := new(big.Int).Quo(unit, big.NewInt(2))
	if d.coefficient.Sign() < 0 {
		half.Neg(half)
	}
	q := half.Add(half, d.coefficient).Quo(half, unit)
	if places < 0 {
		return decimal{q.Mul(q, tenTo(-places)), 0}
	}
	return decimal{q, places}
}

// clamped is the whole part of the number, or the nearest of -limit and limit
// beyond them.
func (d decimal) clamped(limit int) int {
	whole := new(big.Int).Quo(d.coefficient, tenTo(d.scale))
	if whole.CmpAbs(big.NewInt(int64(limit))) > 0 {
		return whole.Sign() * limit
	}
	return int(whole.Int64())
}

func (d decimal) floor() decimal {
	return decimal{floorDivide(d.coefficient, tenTo(d.scale)), 0}
}

func (d decimal) negated() decimal {
	return decimal{new(big.Int).Neg(d.coefficient), d.scale}
}
