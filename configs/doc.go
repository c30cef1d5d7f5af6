// Package configs composes the configuration of a Millrace process from that of
// its packages: a file, the environment and flags, each above the one before.
//
//	defaults of each package ◀ millrace.yaml ◀ MILLRACE_... ◀ --set, flags
//
// A key is described once, on the field of the package that it tunes; the sample
// file millrace.yaml is generated from those comments and a test keeps it so. A
// key that does not exist is an error with file, line and column, as is a value
// that cannot be one of its kind; all of them are told at once.
//
// The package also embeds the declarations of the sample shop, WebStore.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package configs

import (
	"embed"
	"io/fs"
)

//go:embed webstore/*.yaml
var webStore embed.FS

// WebStore returns the declarations of the sample shop: its containers and
// pipelines, one YAML file each.
func WebStore() fs.FS {
	dir, err := fs.Sub(webStore, "webstore")
	if err != nil {
		panic(err) // the name is a constant
	}
	return dir
}
