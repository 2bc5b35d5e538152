package expression

// Left is what a budget still has, for tests that count.
func (b *Budget) Left() (steps, memory int) { return b.steps, b.memory }
