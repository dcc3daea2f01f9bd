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
	// apiPrefix begins the path of every document.
	apiPrefix = "/api/"
	// maxPath bounds a path, in bytes. The longest has a namespace and a name.
	maxPath = 1024
	// writeTimeout bounds the time to write a response, or one event.
	writeTimeout = 30 * time.Second
	// requestsPerSecond and requestBurst bound the requests of one caller.
	requestsPerSecond = 20
	requestBurst      = 60
	// maxCallers bounds the callers whose requests are counted, and callerTTL the time for which they are: a
	// forgotten caller starts with a whole burst.
	maxCallers = 1024
	callerTTL  = time.Minute
)

// policy is the Content-Security-Policy of every response. The component library sets styles of elements
// by script, which needs neither 'unsafe' keyword for scripts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// secure sets the headers of every response, and refuses requests that the front end never sends.
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
		// A server without deadlines, such as one of a test, returns an error, which is ignored.
		_ = http.NewResponseController(w).SetWriteDeadline(s.deadline())
		if err := s.admissible(r); err != nil {
			if r.ProtoMajor == 1 { // other requests of an HTTP/2 connection may be valid
				h.Set("Connection", "close")
			}
			refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admissible checks a request's method, path, body, host and origin.
func (s *Server) admissible(r *http.Request) error {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return &Refusal{http.StatusMethodNotAllowed, r.Method + ": the web view only answers GET and HEAD", "use kubectl to change something"}
	case len(r.URL.Path) > maxPath:
		return &Refusal{http.StatusRequestURITooLong, fmt.Sprintf("the path has more than %d bytes", maxPath), "ask for a path of docs/web-api.md"}
	case r.ContentLength != 0:
		return &Refusal{http.StatusRequestEntityTooLarge, "the request has a body", "send none"}
	case len(s.config.Hosts) > 0 && !slices.Contains(s.config.Hosts, hostOf(r.Host)):
		// With DNS rebinding, a page of a name that resolves to this machine would have the same origin as the
		// web view.
		return &Refusal{http.StatusMisdirectedRequest, fmt.Sprintf("the web view is not called %q", hostOf(r.Host)), "use one of " + strings.Join(s.config.Hosts, ", ")}
	case strings.HasPrefix(r.URL.Path, apiPrefix) && crossSite(r):
		return &Refusal{http.StatusForbidden, "a page of another site asks", "open the web view itself"}
	}
	return nil
}

// hostOf returns a Host header's name in lower case, without port and brackets.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// crossSite reports whether a page of another origin sent the request, from headers that browsers set and
// programs do not. https://www.w3.org/TR/fetch-metadata/
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	return origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host
}

// limits bound the rate of each caller's requests.
type limits struct {
	callers *cache.LRUExpireCache
	now     func() time.Time
}

// allow takes one of the caller's requests from its limit.
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
