package endpoint

import "github.com/tokenkeep/tokenkeep/internal/httpapi"

// RouteOf makes the route of a row.
func RouteOf(r httpapi.Route, h handler) httpapi.Route { return Services{}.route(row{r, h}) }

// What the fuzz target looks at from inside.
var (
	LogFilterOf   = logFilterOf
	TokenFilterOf = tokenFilterOf
	PageOf        = pageOf
)
