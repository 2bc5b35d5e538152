package api

import _ "embed"

// OpenAPI is the description of the API in OpenAPI 3.1, as YAML. A test holds
// it against the server's own table of routes.
//
//go:embed openapi.yaml
var OpenAPI []byte
