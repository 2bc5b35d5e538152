package endpoint

// What the fuzz target looks at from inside.
var (
	LogFilterOf   = logFilterOf
	TokenFilterOf = tokenFilterOf
	PageOf        = pageOf
)
