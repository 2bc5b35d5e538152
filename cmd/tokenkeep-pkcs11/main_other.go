//go:build !cgo || !unix

// Tokenkeep-pkcs11 uses a key in a PKCS#11 token. This build cannot: it was made
// without a C compiler.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "tokenkeep-pkcs11: built without cgo, which PKCS#11 modules need: build it with CGO_ENABLED=1 and a C compiler")
	os.Exit(1)
}
