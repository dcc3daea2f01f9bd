// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// unbuilt is served if the program was built without the front end.
const unbuilt = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>nvtopo</title></head>
<body>
<h1>The pages of the web view are not built</h1>
<p>This nvtopo was built without them. The JSON API works: <a href="/api/v1/cluster">/api/v1/cluster</a>.</p>
<p>In a checkout, with Node.js: <code>make ui build</code>, and start <code>bin/nvtopo ui</code> again.</p>
</body>
</html>
`

// assets is the folder of files whose names change with their content.
const assets = "assets/"

// files serves the front end. A path without a file is a page of the front end: it gets index.html.
func (s *Server) files() http.Handler {
	if s.config.Files == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			if r.URL.Path != "/" {
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = w.Write([]byte(unbuilt)) // a lost client needs no answer
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
		info, err := fs.Stat(s.config.Files, name)
		isFile := err == nil && !info.IsDir()
		switch {
		case isFile && strings.HasPrefix(name, assets):
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		case strings.HasPrefix(name, assets):
			http.NotFound(w, r) // of another build: the requesting page is old
			return
		default:
			w.Header().Set("Cache-Control", "no-store")
		}
		if !isFile || name == "index.html" {
			name = "index.html"
		}
		http.ServeFileFS(w, withPath(r, name), s.config.Files, name)
	})
}

// withPath returns the request with another path: ServeFileFS redirects requests for index.html.
func withPath(r *http.Request, name string) *http.Request {
	out := r.Clone(r.Context())
	out.URL.Path = "/" + strings.TrimSuffix(name, "index.html")
	return out
}
