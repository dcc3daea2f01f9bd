// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
	"github.com/nvtopo/nvtopo/pkg/webui/clusterwatch"
)

// Config configures a Server.
type Config struct {
	// Watch holds the objects. The caller runs it.
	Watch *clusterwatch.Watch
	// Ledger reads usage and bills on request.
	Ledger *ledger.Reader
	// Events lists the events about a pod on request.
	Events func(ctx context.Context, namespace, pod string) ([]v1.Event, error)
	// Files is the front end, with index.html at the top; nil if it was not built.
	Files  fs.FS
	Access Access
	// Hosts are the accepted host names of requests; empty accepts any.
	Hosts []string
	// Resource is the extended resource of the GPUs.
	Resource string
	// Version is the program's version.
	Version string
	Clock   clock.WithTicker
}

// Server serves the web view.
type Server struct {
	config  Config
	states  *states
	limits  *limits
	viewers *viewers
	heavy   *heavy
	looking atomic.Int64 // number of streams

	writeTimeout time.Duration
}

// New makes a server.
func New(c Config) (*Server, error) {
	if c.Watch == nil || c.Access == nil || c.Clock == nil {
		return nil, errors.New("the web view needs a watch, an access and a clock")
	}
	return &Server{
		config:  c,
		states:  &states{watch: c.Watch, opt: clusterview.Options{Resource: c.Resource}, now: c.Clock.Now, memo: clusterview.NewMemo()},
		limits:  &limits{callers: cache.NewLRUExpireCacheWithClock(maxCallers, c.Clock), now: c.Clock.Now},
		viewers: &viewers{of: map[string]int{}},
		heavy:   newHeavy(c.Clock),

		writeTimeout: writeTimeout,
	}, nil
}

// Run makes states while the stream has viewers, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	tick := s.config.Clock.NewTicker(gap)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
			if s.looking.Load() > 0 {
				// Requests for a document return the error.
				_, _ = s.states.fresh()
			}
		}
	}
}

// deadline returns the time by which a response, or one event, must be written. Connections have no other
// clock than the machine's.
func (s *Server) deadline() time.Time { return clock.RealClock{}.Now().Add(s.writeTimeout) }

// live and ready answer kubelet's probes, which have no token.
func live(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("ok\n")) // the connection is lost
}

// ready answers 200 once the cluster has been read.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if !s.config.Watch.Settled() {
		refuse(w, r, &Refusal{http.StatusServiceUnavailable, "the cluster is being read", "try again in a moment"})
		return
	}
	live(w, r)
}

// Handler answers all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, d := range s.documents() {
		mux.Handle("GET "+path, s.document(d))
	}
	mux.Handle("GET /api/v1/stream", http.HandlerFunc(s.stream))
	mux.HandleFunc("GET /livez", live)
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc(apiPrefix, func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, &Refusal{http.StatusNotFound, "the API has no such path", "see docs/web-api.md"})
	})
	mux.Handle("/", s.files())
	return s.secure(mux)
}
