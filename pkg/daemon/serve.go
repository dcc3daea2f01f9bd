// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"k8s.io/klog/v2"
)

// shutdownTimeout bounds how long a scrape in progress holds up the end.
const shutdownTimeout = 5 * time.Second

// Observable is a program whose state can be asked for.
type Observable interface {
	Gatherer() prometheus.Gatherer
	Healthy() error
}

// ServeWhile serves /metrics and /healthz at addr while run runs; an empty addr
// serves nothing. It fails at once if the address cannot be had.
func ServeWhile(ctx context.Context, addr string, o Observable, run func(context.Context) error) error {
	if addr == "" {
		return run(ctx)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	srv := &http.Server{Handler: handler(o), ReadHeaderTimeout: 10 * time.Second}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		defer cancel() // without metrics the program is not what was asked for
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve metrics: %w", err)
		}
		close(failed)
	}()
	klog.FromContext(ctx).Info("Serving metrics", "address", ln.Addr().String())
	err = run(ctx)
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer stop()
	return errors.Join(err, srv.Shutdown(end), <-failed)
}

func handler(o Observable) http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{o.Gatherer(), process}, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the prober may be gone
	})
	return mux
}
