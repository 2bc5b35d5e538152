package token

import (
	"context"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/processor"
)

const (
	// decisionSteps is what deciding on one group costs, in steps of expressions.
	decisionSteps = 512
	// manyGroups is from how many groups on the number is remembered.
	manyGroups = 128
)

// groupCounts remembers how many groups of tokens a list decided on lately, for
// each tenant that has many. The zero groupCounts are ready for use.
type groupCounts struct {
	mu    sync.Mutex
	known map[string]int
}

func (g *groupCounts) note(tenant string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n < manyGroups {
		delete(g.known, tenant)
		return
	}
	if g.known == nil {
		g.known = make(map[string]int)
	}
	g.known[tenant] = n
}

func (g *groupCounts) of(tenant string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[tenant]
}

// beginSelection waits for the turn of a list that decides on many groups. It
// comes before the transaction, inside of which nothing may wait, so it goes by
// the number of groups that was found last. The caller calls End, whatever the
// error is.
func (s *Service) beginSelection(ctx context.Context, tenant string) (*processor.Work, error) {
	work := s.turns.For(tenant)
	if err := work.Begin(ctx); err != nil {
		return work, err
	}
	return work, work.Spend(ctx, decisionSteps*s.groups.of(tenant))
}
