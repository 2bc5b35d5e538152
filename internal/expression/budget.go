package expression

import (
	"context"
	"io"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

const (
	// DefaultSteps is how many steps the expressions of one request may take
	// together, unless the limits say otherwise. A step is about a byte that is
	// read or written.
	DefaultSteps = 10_000_000
	// DefaultMemory is how many bytes of values the expressions of one request
	// may make together, unless the limits say otherwise.
	DefaultMemory = 1 << 20

	// A budget grows by this much for each byte of data that the expressions of
	// a request see: who sends or stores much may work on much.
	stepsPerByte  = 16
	memoryPerByte = 4

	// maskShare is the part of both limits that one mask may use: masks are
	// evaluated again on every read, for each token of a page.
	maskShare = 16

	// encodingSteps is what a byte of JSON costs, beside reading it.
	encodingSteps = 4

	// checkedSteps is how many steps are taken between two looks at the context.
	checkedSteps = 1 << 15
)

var (
	errOutput = fault.New(fault.Invalid, "the expression makes too much output")
	errLarge  = fault.New(fault.TooLarge, "the request is too large once its tokens are in it")
	errSteps  = fault.New(fault.Invalid, "the expressions of the request take too many steps").WithCode("expression_steps")
	errMemory = fault.New(fault.Invalid, "the expressions of the request make values that are too large").WithCode("expression_memory")

	errMaskSteps  = fault.New(fault.Invalid, "the mask takes too many steps").WithCode("expression_steps")
	errMaskMemory = fault.New(fault.Invalid, "the mask makes values that are too large").WithCode("expression_memory")
)

// Limits bound the expressions of one request. The zero Limits are the default.
type Limits struct {
	Steps  int // default DefaultSteps
	Memory int // bytes, default DefaultMemory
	// Reached is called when a request reaches one of them; it may be nil.
	Reached func()
	// Work takes turns with other requests; nil waits for none.
	Work Work
}

// Work takes turns at the processors with other requests, as a Work of
// internal/processor does. It is told how many steps were taken and nothing else.
type Work interface {
	// Begin and End enclose what takes steps. Begin may block.
	Begin(ctx context.Context) error
	End()
	// Spend reports steps. It may block, and returns the error of a context
	// that ends meanwhile.
	Spend(ctx context.Context, steps int) error
}

// unshared is work that waits for nobody.
type unshared struct{}

func (unshared) Begin(context.Context) error      { return nil }
func (unshared) End()                             {}
func (unshared) Spend(context.Context, int) error { return nil }

// Budget is what is left of the limits of one request, whatever the number of
// its tokens, expressions and filters. When the context of the request ends,
// nothing is left. It is not safe for concurrent use.
type Budget struct {
	*account
	max    int // the most that one filter, or all output, may make
	output int // bytes left
	over   error
}

// account is the part of a budget that several outputs share.
type account struct {
	ctx           context.Context
	limits        Limits
	steps, memory int // left
	growth        int // bytes by which it may still grow
	unchecked     int // steps until the next look at the context
	tooManySteps  error
	tooMuchMemory error
	ended         error // why nothing is left

	parent *account // pays too; nil for that of a request
}

func (l Limits) account(ctx context.Context) *account {
	if l.Steps <= 0 {
		l.Steps = DefaultSteps
	}
	if l.Memory <= 0 {
		l.Memory = DefaultMemory
	}
	if l.Work == nil {
		l.Work = unshared{}
	}
	return &account{
		ctx: ctx, limits: l, steps: l.Steps, memory: l.Memory, growth: MaxStream, unchecked: checkedSteps, tooManySteps: errSteps, tooMuchMemory: errMemory,
	}
}

// Budget is for the ids, masks, indexes and fingerprints of one request.
func (l Limits) Budget(ctx context.Context) *Budget {
	return (&Budget{account: l.account(ctx)}).bounded(MaxOutput, errOutput)
}

// BodyBudget is for the detokenization of one request: what it expands to, all
// in all, is at most maxOutput bytes, and beyond that the fault is TooLarge.
func (l Limits) BodyBudget(ctx context.Context, maxOutput int) *Budget {
	a := l.account(ctx)
	a.growth = maxOutput
	return (&Budget{account: a}).bounded(maxOutput, errLarge)
}

// orDefault is the budget, or one of default size that belongs to no request.
func (b *Budget) orDefault() *Budget {
	if b == nil {
		return Limits{}.Budget(context.Background())
	}
	return b
}

// bounded shares the account, with an output of its own.
func (b *Budget) bounded(maxOutput int, over error) *Budget {
	return &Budget{account: b.account, max: maxOutput, output: maxOutput, over: over}
}

// forMask is the share of one mask over so many bytes of data. The request
// pays for it too.
func (b *Budget) forMask(dataSize, maxOutput int) *Budget {
	a := *b.account
	a.steps, a.memory = a.limits.Steps/maskShare+stepsPerByte*dataSize, max(a.limits.Memory/maskShare, 2*MaxOutput)+memoryPerByte*dataSize
	a.tooManySteps, a.tooMuchMemory, a.parent = errMaskSteps, errMaskMemory, b.account
	a.limits.Work = unshared{} // the parent reports the steps
	return &Budget{account: &a, max: maxOutput, output: maxOutput, over: errOutput}
}

// Grow adds what so many bytes of data allow for.
func (b *Budget) Grow(dataSize int) {
	n := min(dataSize, b.growth)
	b.growth -= n
	b.steps += stepsPerByte * n
	b.memory += memoryPerByte * n
}

// Err is why nothing is left: the context ended, or a limit is reached. It is
// nil while the request may go on.
func (b *Budget) Err() error {
	b.look()
	return b.ended
}

func (a *account) end(err error) error {
	if a.ended == nil {
		a.ended = err
	}
	return a.ended
}

// reach ends the account at one of its limits.
func (a *account) reach(err error) error {
	if a.ended == nil && a.limits.Reached != nil {
		a.limits.Reached()
	}
	return a.end(err)
}

// look ends the account when the context has ended. It blocks while other
// tenants have their turns at the processors.
func (a *account) look() {
	steps := checkedSteps - a.unchecked
	a.unchecked = checkedSteps
	err := a.ctx.Err()
	if err == nil {
		err = a.limits.Work.Spend(a.ctx, steps)
	}
	if err != nil {
		_ = a.end(err)
	}
}

// Begin says that work on the budget follows, which ends with End. It may block
// while other tenants have their turns at the processors, so it is never called
// inside a transaction, and nothing between Begin and End waits for anybody.
// End is called whatever Begin returned.
func (b *Budget) Begin() error {
	if b == nil {
		return nil
	}
	if err := b.limits.Work.Begin(b.ctx); err != nil {
		return b.end(err)
	}
	return nil
}

// Worked reports steps of work beside expressions, between Begin and End. The
// request is not charged for them.
func (b *Budget) Worked(steps int) error {
	if err := b.limits.Work.Spend(b.ctx, steps); err != nil {
		return b.end(err)
	}
	return nil
}

// End ends what Begin began.
func (b *Budget) End() {
	if b != nil {
		b.limits.Work.End()
	}
}

// spend takes n steps and a few for coming here at all.
func (a *account) spend(n int) error {
	if a.ended != nil {
		return a.ended
	}
	if a.parent != nil {
		if err := a.parent.spend(n); err != nil {
			return a.end(err)
		}
	}
	n += 32
	if a.steps -= n; a.steps < 0 {
		return a.reach(a.tooManySteps)
	}
	if a.unchecked -= n; a.unchecked <= 0 {
		a.look()
	}
	return a.ended
}

// allocate takes n bytes for values that are about to be made.
func (a *account) allocate(n int) error {
	if a.ended != nil {
		return a.ended
	}
	if a.parent != nil {
		if err := a.parent.allocate(n); err != nil {
			return a.end(err)
		}
	}
	if a.memory -= n; a.memory < 0 {
		return a.reach(a.tooMuchMemory)
	}
	return nil
}

// produce takes n bytes of the output, and what writing them costs.
func (b *Budget) produce(n int) error {
	if b.output -= n; b.output < 0 {
		return b.over
	}
	return b.spend(n)
}

// Reserve takes n bytes of the output for what stays as it is.
func (b *Budget) Reserve(n int) error { return b.produce(n) }

// parsing takes what reading a text with expressions costs. A nil budget is for
// texts that are parsed outside of any request.
func (b *Budget) parsing(text string) error {
	if b == nil {
		return nil
	}
	return b.spend(4 * len(text))
}

// parsed takes what so many operations cost that a text turned out to have.
func (b *Budget) parsed(operations int) error {
	if b == nil {
		return nil
	}
	return b.spend(32 * operations)
}

// boundedWriter charges what it passes on. What it gathers is held whole.
type boundedWriter struct {
	w       io.Writer
	budget  *Budget
	gathers bool
}

// Write is for what is encoded on its way, lists and objects for example, which
// costs more than text as it is.
func (b *boundedWriter) Write(p []byte) (int, error) {
	if err := b.budget.spend(encodingSteps * len(p)); err != nil {
		return 0, err
	}
	if err := b.charge(len(p)); err != nil {
		return 0, err
	}
	return b.w.Write(p)
}

func (b *boundedWriter) WriteString(s string) (int, error) {
	if err := b.charge(len(s)); err != nil {
		return 0, err
	}
	return io.WriteString(b.w, s)
}

func (b *boundedWriter) charge(n int) error {
	if err := b.budget.produce(n); err != nil || !b.gathers {
		return err
	}
	return b.budget.allocate(n)
}
