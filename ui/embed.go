// SPDX-License-Identifier: Apache-2.0

// Package ui is the built front end of the web view. `make ui` builds it from src into dist,
// which git ignores, so a checkout that was never built has none. See README.md beside.
package ui

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Files returns what was built, with index.html at the top. It is false if nothing was.
func Files() (fs.FS, bool) {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, false
	}
	_, err = fs.Stat(files, "index.html")
	return files, err == nil
}
