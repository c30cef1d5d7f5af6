package configs

import _ "embed"

// Schema is the JSON Schema of the documents that millrace apply and millrace test read:
// millrace.schema.json, which is generated from the types of pipelines/spec and their
// comments. It never changes.
//
//go:embed millrace.schema.json
var Schema string
