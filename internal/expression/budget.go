package expression

import (
	"io"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

var (
	errOutput = fault.New(fault.Invalid, "the expression makes too much output")
	errLarge  = fault.New(fault.TooLarge, "the request is too large once its tokens are in it")
	errWork   = fault.New(fault.Invalid, "the expression takes too many steps")
)

// Budget bounds what evaluations make and how much they work, together. It is
// not safe for concurrent use.
type Budget struct {
	max    int // the most that one filter, or all output, may make
	output int // bytes left
	work   int // steps left: a few for each operation, one for each byte looked at or made
	over   error
}

// NewBudget is for the detokenization of one request: what it expands to, all
// in all, is at most maxOutput bytes, and beyond that the fault is TooLarge.
func NewBudget(maxOutput int) *Budget { return newBudget(maxOutput, errLarge) }

func newBudget(maxOutput int, over error) *Budget {
	return &Budget{max: maxOutput, output: maxOutput, work: 64<<20 + 8*maxOutput, over: over}
}

// spend takes n steps and a few for coming here at all.
func (b *Budget) spend(n int) error {
	if b.work -= n + 32; b.work < 0 {
		return errWork
	}
	return nil
}

func (b *Budget) produce(n int) error {
	if b.output -= n; b.output < 0 {
		return b.over
	}
	return nil
}

// boundedWriter charges what it passes on.
type boundedWriter struct {
	w      io.Writer
	budget *Budget
}

func (b *boundedWriter) Write(p []byte) (int, error) {
	if err := b.budget.produce(len(p)); err != nil {
		return 0, err
	}
	return b.w.Write(p)
}

func (b *boundedWriter) WriteString(s string) (int, error) {
	if err := b.budget.produce(len(s)); err != nil {
		return 0, err
	}
	return io.WriteString(b.w, s)
}
