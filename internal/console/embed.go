//go:build !noconsole

package console

import "embed"

// embedded reports whether the binary was built with the folder of the console.
const embedded = true

// dist holds what 'make build' makes from web/console. A fresh clone has only a
// page that explains that.
//
//go:embed dist
var dist embed.FS
