// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"net/http"
	"strings"
	"testing"
)

// TestFrontEndFiles checks how the front end's files are served: paths of pages get index.html, which is
// not cached; files with a hash of their content in their name are cached for good.
func TestFrontEndFiles(t *testing.T) {
	b := newTestEnv(t, sample(t), func(c *Config) {
		c.Files = pages(map[string]string{"index.html": "<html>index</html>", "assets/app-1234.js": "code", "icon.svg": "<svg/>"})
	})
	for path, want := range map[string]struct {
		code                int
		text, kept, content string
	}{
		"/":                       {200, "index", "no-store", "text/html"},
		"/index.html":             {200, "index", "no-store", "text/html"},
		"/workloads?state=failed": {200, "index", "no-store", "text/html"},
		"/nodes/gpu-7":            {200, "index", "no-store", "text/html"},
		"/gangs/a/b.c":            {200, "index", "no-store", "text/html"},
		"/assets/app-1234.js":     {200, "code", "immutable", "javascript"},
		"/assets/app-0000.js":     {404, "", "", ""},
		"/assets/../../etc/hosts": {200, "index", "no-store", "text/html"},
		"/icon.svg":               {200, "svg", "no-store", "image/svg+xml"},
	} {
		answer, text := b.ask(t, asked{path: path})
		if answer.StatusCode != want.code || !strings.Contains(text, want.text) ||
			!strings.Contains(answer.Header.Get("Cache-Control"), want.kept) || !strings.Contains(answer.Header.Get("Content-Type"), want.content) {
			t.Errorf("%s: %d %q, %q, %q; want %+v", path, answer.StatusCode, text, answer.Header.Get("Cache-Control"), answer.Header.Get("Content-Type"), want)
		}
	}
}

// TestMissingFrontEnd: a page says how to build the front end where it is missing, and the API
// works.
func TestMissingFrontEnd(t *testing.T) {
	b := newTestEnv(t, sample(t), nil)
	for path, wantCode := range map[string]int{"/": http.StatusOK, "/workloads": http.StatusNotFound, "/pools": http.StatusNotFound} {
		answer, text := b.ask(t, asked{path: path})
		if answer.StatusCode != wantCode || !strings.Contains(text, "make ui build") {
			t.Errorf("%s: %d %s; want %d and how to build the pages", path, answer.StatusCode, text, wantCode)
		}
	}
	if answer, _ := b.ask(t, asked{path: "/api/v1/cluster"}); answer.StatusCode != http.StatusOK {
		t.Errorf("the API: %d", answer.StatusCode)
	}
}

// TestAnswerTags: answers are kept by their tag, and compressed for who takes that.
func TestAnswerTags(t *testing.T) {
	b := newTestEnv(t, sample(t), nil)
	first, text := b.ask(t, asked{path: "/api/v1/cluster"})
	again, _ := b.ask(t, asked{path: "/api/v1/cluster", header: map[string]string{"If-None-Match": first.Header.Get("ETag")}})
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("the same document again: %d", again.StatusCode)
	}
	packed, body := b.ask(t, asked{path: "/api/v1/cluster", header: map[string]string{"Accept-Encoding": "gzip"}})
	if packed.Header.Get("Content-Encoding") != "gzip" || len(body) >= len(text) {
		t.Errorf("%q with %d of %d bytes", packed.Header.Get("Content-Encoding"), len(body), len(text))
	}
	if head, body := b.ask(t, asked{method: http.MethodHead, path: "/api/v1/cluster"}); head.StatusCode != 200 || body != "" {
		t.Errorf("HEAD: %d with %d bytes", head.StatusCode, len(body))
	}
}

// TestProbes need no token.
func TestProbes(t *testing.T) {
	b := newTestEnv(t, sample(t), newJudge().byToken)
	for _, path := range []string{"/livez", "/readyz"} {
		if answer, text := b.ask(t, asked{path: path}); answer.StatusCode != 200 || text != "ok\n" {
			t.Errorf("%s: %d %q", path, answer.StatusCode, text)
		}
	}
}
