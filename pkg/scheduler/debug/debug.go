// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/daemon"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

const (
	// authQPS and authBurst limit the requests to the API server that unauthenticated clients can cause; the
	// scheduler's own limit is not used.
	authQPS   = 20
	authBurst = 40
)

// Serve serves the state at an address until ctx ends, and answers what-if; it is a
// lifecycle.DebugServer.
func (s *Source) Serve(ctx context.Context, h fwk.Handle, where lifecycle.Debug, state *nodestate.State) error {
	access := rest.CopyConfig(h.KubeConfig())
	access.QPS, access.Burst, access.RateLimiter = authQPS, authBurst, nil
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return fmt.Errorf("client for authentication: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", where.Address)
	if err != nil {
		return err // it names the address
	}
	config, err := daemon.TLSConfig(ctx, where.CertFile, where.KeyFile, ln.Addr())
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	s.answersAt(ln.Addr(), config)
	opts := daemon.SecureOptions{Listener: ln, TLS: config, Client: client}
	name := host + "@" + ln.Addr().String()
	handler := Handler(state.Diagnosis, name)
	write := func(out io.Writer) error { return s.Write(out, name, time.Now()) }
	newWhatIf(write, func() error { return ready(state) }, Child).register(handler)
	go func() {
		// The scheduler schedules without it.
		if err := daemon.ServeSecure(ctx, opts, handler); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Showing the state ended", "address", where.Address)
		}
	}()
	return nil
}

// ready returns why a process cannot answer what-if: it has not read everything, or it is not the one
// that decides.
func ready(state *nodestate.State) error {
	switch {
	case !state.Lists.Synced():
		return errors.New("the process has not read all graphs and Leases yet")
	case !state.Leader.MayLead():
		return fmt.Errorf("the process does not lead; %q does", state.Leader.Holder())
	}
	return nil
}

// Diagnoser provides the state to serve.
type Diagnoser interface {
	Diagnose(name string) *diagnosis.State
}

// Handler answers GET requests for diagnosis.Path with the state of a process by that name.
// One is made at a time.
func Handler(of Diagnoser, name string) *http.ServeMux {
	var mu sync.Mutex
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+diagnosis.Path, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		body, err := json.Marshal(of.Diagnose(name))
		mu.Unlock()
		if err != nil {
			klog.FromContext(r.Context()).Error(err, "Writing the state failed")
			http.Error(w, "the state cannot be written", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // the client may be gone
	})
	return mux
}
