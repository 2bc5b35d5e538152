//go:build noconsole

package console

import "embed"

const embedded = false

var dist embed.FS
