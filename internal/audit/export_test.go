package audit

// What the tests of formats and bounds need to see.
var (
	HashEntry = hashEntry
	HashLeaf  = hashLeaf
	Merkle    = merkle
	Included  = included
)

// The bounds that tests go beyond.
const (
	MaxBatch       = maxBatch
	MaxTurn        = maxTurn
	Sealers        = sealers
	PageSize       = pageSize
	RefusedBurst   = refusedBurst
	RefusedEvery   = refusedEvery
	RefusedCallers = refusedCallers
	MaxScanned     = maxScanned
)

// LinkAndMessage returns what a checkpoint is chained and signed by.
func LinkAndMessage(c *Checkpoint) (Hash, []byte) { return c.link(), c.message() }
