// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
)

// ReadyPath returns 200 while the server is ready, without a token: kubelet has none.
const ReadyPath = "/readyz"

// Limits of a gate.
const (
	// DefaultMaxBody is the most bytes of a request: a batch of images, not a model.
	DefaultMaxBody = 64 << 20
	// DefaultMaxRequests is the most requests at a time. Servers queue requests that they cannot compute
	// at once, and the gate knows no bound of that queue.
	DefaultMaxRequests = 64
)

// kept are the headers that the server sees. The token is not forwarded.
var kept = []string{"Accept", "Content-Type", "Inference-Header-Content-Length"}

// bodies are the content types that a request may have: JSON, and JSON with raw tensors behind it (the
// protocol's binary tensor data extension).
var bodies = []string{"application/json", "application/octet-stream"}

// Options of a gate.
type Options struct {
	// Server is the URL of the inference server.
	Server *url.URL
	// Token returns the token that clients must send. It is called at each request, so that a replaced
	// token is valid at once.
	Token func() (string, error)
	// Operations are the operations that clients may request.
	Operations []string
	// MaxBody is the most bytes of a request's body.
	MaxBody int64
	// MaxRequests is the most requests that the server has at a time.
	MaxRequests int
}

// Gate is the handler in front of a server.
type Gate struct {
	opts  Options
	proxy *httputil.ReverseProxy
	slots chan struct{}
}

// New returns a Gate. It starts nothing.
func New(opts Options) (*Gate, error) {
	if opts.Server == nil || opts.Token == nil || opts.MaxBody <= 0 || opts.MaxRequests <= 0 {
		return nil, errors.New("a gate needs a server, a token and limits above 0")
	}
	g := &Gate{opts: opts, slots: make(chan struct{}, opts.MaxRequests)}
	g.proxy = &httputil.ReverseProxy{Rewrite: g.rewrite, ErrorHandler: g.failed}
	return g, nil
}

// ServeHTTP forwards a request to the server, or refuses it with a reason.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == ReadyPath && r.Method == http.MethodGet {
		g.pass(w, ready(r))
		return
	}
	if v := g.admit(r); v != passed {
		refuse(w, v)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, g.opts.MaxBody)
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
		g.pass(w, r)
	default:
		w.Header().Set("Retry-After", "1")
		refuse(w, verdict{http.StatusServiceUnavailable, "BUSY", "the session has as many requests as it takes"})
	}
}

// ready turns a request for the gate's readiness into one for the server's. It needs no token, so
// nothing of the client's request is forwarded.
func ready(r *http.Request) *http.Request {
	health := r.Clone(r.Context())
	health.Body, health.ContentLength, health.TransferEncoding, health.Header = http.NoBody, 0, nil, http.Header{}
	health.URL.Path, health.URL.RawPath, health.URL.RawQuery = "/v2/health/ready", "", ""
	return health
}

// admit decides a request by all but its body, the token first: a client without a token learns nothing
// else.
func (g *Gate) admit(r *http.Request) verdict {
	want, err := g.opts.Token()
	if err != nil || want == "" {
		return verdict{http.StatusServiceUnavailable, "NO_TOKEN", "the session has no token"}
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || !same(got, want) {
		return verdict{http.StatusUnauthorized, "UNAUTHENTICATED", "want the header Authorization: Bearer with the session's token"}
	}
	// A path or query in two spellings could have one meaning here and another at the server.
	if r.URL.RawPath != "" || r.URL.RawQuery != "" || r.URL.ForceQuery {
		return verdict{http.StatusBadRequest, "BAD_PATH", "want a path without escapes and without a query"}
	}
	if v := judge(r.Method, r.URL.Path, g.opts.Operations); v != passed {
		return v
	}
	return g.body(r)
}

// body decides by the declared type and length of the body; the length is checked again as it is read.
func (g *Gate) body(r *http.Request) verdict {
	if r.Method != http.MethodPost {
		return passed
	}
	if r.ContentLength > g.opts.MaxBody {
		return verdict{http.StatusRequestEntityTooLarge, "TOO_LARGE", fmt.Sprintf("want at most %d bytes", g.opts.MaxBody)}
	}
	if r.Header.Get("Content-Encoding") != "" {
		return verdict{http.StatusUnsupportedMediaType, "BAD_TYPE", "want a body without Content-Encoding"}
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && slices.Contains(bodies, kind) {
		return passed
	}
	return verdict{http.StatusUnsupportedMediaType, "BAD_TYPE", "want a body of type " + strings.Join(bodies, " or ") +
		"; objects of a client's program are never decoded"}
}

// same compares in a time that does not depend on the tokens.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

func (g *Gate) pass(w http.ResponseWriter, r *http.Request) { g.proxy.ServeHTTP(w, r) }

// rewrite builds the request to the server from the kept parts of the client's.
func (g *Gate) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host = g.opts.Server.Scheme, g.opts.Server.Host
	p.Out.Host = g.opts.Server.Host
	headers := http.Header{}
	for _, name := range kept {
		if v := p.In.Header.Get(name); v != "" {
			headers.Set(name, v)
		}
	}
	p.Out.Header = headers
}

// failed responds when the server does not, or when the body was longer than declared.
func (g *Gate) failed(w http.ResponseWriter, _ *http.Request, err error) {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		refuse(w, verdict{http.StatusRequestEntityTooLarge, "TOO_LARGE", fmt.Sprintf("want at most %d bytes", g.opts.MaxBody)})
		return
	}
	refuse(w, verdict{http.StatusBadGateway, "NO_SERVER", "the inference server does not answer"})
}

// refuse responds with the reason, in the protocol's form of an error and with a code.
func refuse(w http.ResponseWriter, v verdict) {
	w.Header().Set("Content-Type", "application/json")
	if v.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(v.status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": v.reason, "code": v.code}) // a client may be gone
}
