// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// apiPrefix is before the path of every document.
	apiPrefix = "/api/"
	// maxPath bounds a path, in bytes. The longest has a namespace and a name.
	maxPath = 1024
	// writeTimeout bounds how long an answer, or one event, may take.
	writeTimeout = 30 * time.Second
	// requestsPerSecond and requestBurst bound the requests of one caller.
	requestsPerSecond = 20
	requestBurst      = 60
	// maxCallers bounds the callers of whom it is known how much they asked, and callerTTL for how
	// long: a caller who is forgotten starts with a whole burst.
	maxCallers = 1024
	callerTTL  = time.Minute
)

// policy is the Content-Security-Policy of every answer. The component library sets styles of
// elements by script, which needs none of the two 'unsafe' that let scripts in.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// secure sets the headers of every answer, and refuses what no browser of ours sends.
func (s *Server) secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		// A server without deadlines, such as one of a test, says so and goes on.
		_ = http.NewResponseController(w).SetWriteDeadline(s.deadline())
		if err := s.admissible(r); err != nil {
			if r.ProtoMajor == 1 { // other requests of the connection of HTTP/2 may be in order
				h.Set("Connection", "close")
			}
			refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admissible looks at what a request says of itself.
func (s *Server) admissible(r *http.Request) error {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return &Refusal{http.StatusMethodNotAllowed, r.Method + ": the web view only answers GET and HEAD", "use kubectl to change something"}
	case len(r.URL.Path) > maxPath:
		return &Refusal{http.StatusRequestURITooLong, fmt.Sprintf("the path has more than %d bytes", maxPath), "ask for a path of docs/web-api.md"}
	case r.ContentLength != 0:
		return &Refusal{http.StatusRequestEntityTooLarge, "the request has a body", "send none"}
	case len(s.config.Hosts) > 0 && !slices.Contains(s.config.Hosts, hostOf(r.Host)):
		// A page of a name that its owner has resolve to this machine (DNS rebinding) would be of
		// the same origin as the web view.
		return &Refusal{http.StatusMisdirectedRequest, fmt.Sprintf("the web view is not called %q", hostOf(r.Host)), "use one of " + strings.Join(s.config.Hosts, ", ")}
	case strings.HasPrefix(r.URL.Path, apiPrefix) && crossSite(r):
		return &Refusal{http.StatusForbidden, "a page of another site asks", "open the web view itself"}
	}
	return nil
}

// hostOf is a Host header's name, without port and brackets.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// crossSite reports whether a page of another origin sent the request, as far as browsers say.
// Programs say nothing. https://www.w3.org/TR/fetch-metadata/
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	return origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host
}

// limits count what each caller asks.
type limits struct {
	callers *cache.LRUExpireCache
	now     func() time.Time
}

// allow takes one of the requests that a caller may make now.
func (l *limits) allow(caller string) error {
	limiter := rate.NewLimiter(requestsPerSecond, requestBurst)
	if known, ok := l.callers.Get(caller); ok {
		limiter = known.(*rate.Limiter) //nolint:forcetypeassert // only limiters are kept
	} else {
		l.callers.Add(caller, limiter, callerTTL)
	}
	if !limiter.AllowN(l.now(), 1) {
		return &Refusal{http.StatusTooManyRequests, fmt.Sprintf("more than %d requests a second", requestsPerSecond), "follow the stream instead of asking"}
	}
	return nil
}
