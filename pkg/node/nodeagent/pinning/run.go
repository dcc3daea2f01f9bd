// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"k8s.io/klog/v2"
)

const (
	pluginName = "nvtopo"
	// pluginIndex makes the runtime call this plugin last, so that it sees the settings of others: if two
	// plugins set the same field, the container is not created.
	pluginIndex = "99"
	// registration is the time limit for connecting and registering; the runtime's own
	// limit is 5 s.
	registration = 10 * time.Second
	// giveUp is how long a cancelled registration may take to end by itself.
	giveUp = time.Second
	// Attempts to connect are firstRetry apart, doubling to lastRetry. After a
	// connection that lasted for lastRetry, the delays start over.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

var (
	errConnectionLost = errors.New("the runtime closed the connection")
	errGivenUp        = errors.New("the connection was given up")
)

// Run stays connected to the runtime until ctx ends, and then returns nil. An absent or restarting
// runtime, or one with NRI disabled, is not an error.
func (p *Plugin) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("nri")
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logger))
	var group sync.WaitGroup
	group.Go(func() { p.watchCondition(ctx) })
	defer group.Wait()
	defer cancel()
	wait, before := firstRetry, ""
	for {
		began := p.clk.Now()
		err := p.connect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		p.note(link{err: err})
		if p.clk.Since(began) > lastRetry {
			wait = firstRetry
		}
		if text := err.Error(); text != before {
			logger.Info("Not connected to the container runtime, trying again", "err", text, "socket", p.cfg.Socket)
			before = text
		}
		timer := p.clk.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		wait = min(2*wait, lastRetry)
	}
}

// connect serves one connection until the connection or ctx ends, and returns the reason.
func (p *Plugin) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost, log := make(chan struct{}), &stubLogger{to: klog.FromContext(ctx)}
	var once sync.Once
	dial := func(socket string) (net.Conn, error) {
		return (&net.Dialer{Timeout: registration}).DialContext(ctx, "unix", socket)
	}
	st, err := stub.New(&session{Plugin: p, done: ctx.Done(), logger: klog.FromContext(ctx)},
		stub.WithPluginName(pluginName), stub.WithPluginIdx(pluginIndex), stub.WithSocketPath(p.cfg.Socket), stub.WithDialer(dial),
		stub.WithOnClose(func() { once.Do(func() { close(lost) }) }), stub.WithLogger(log))
	if err != nil {
		return fmt.Errorf("NRI: %w", err)
	}
	if err := p.start(ctx, cancel, st, log); err != nil {
		return fmt.Errorf("NRI: %w", err)
	}
	select {
	case <-lost:
		return errConnectionLost
	case <-ctx.Done():
		st.Stop()
		return ctx.Err()
	}
}

// start registers the plugin. After that the library waits for the runtime's Configure, without a limit.
// If it does not come, cancel makes the session's Configure fail, and start's own call of it ends the
// wait.
func (p *Plugin) start(ctx context.Context, cancel context.CancelFunc, st stub.Stub, log *stubLogger) error {
	started := make(chan error, 1)
	go func() { started <- st.Start(ctx) }()
	timer := p.clk.NewTimer(registration)
	defer timer.Stop()
	select {
	case err := <-started:
		return err
	case <-ctx.Done():
	case <-timer.C():
	}
	cancel()
	ended, err := p.endsSoon(started)
	if !ended {
		if service, ok := st.(api.PluginService); ok && log.lines.Load() > 0 {
			_, _ = service.Configure(ctx, &api.ConfigureRequest{}) // its error is what Start returns
		}
		err = <-started
	}
	if err != nil {
		return err
	}
	st.Stop() // it had succeeded after all
	return fmt.Errorf("no answer from the runtime within %v", registration)
}

// endsSoon waits up to giveUp for a cancelled registration to end.
func (p *Plugin) endsSoon(started <-chan error) (bool, error) {
	timer := p.clk.NewTimer(giveUp)
	defer timer.Stop()
	select {
	case err := <-started:
		return true, err
	case <-timer.C():
		return false, nil
	}
}

// stubLogger forwards the library's log at high verbosity: the agent logs the important events itself.
type stubLogger struct {
	to klog.Logger
	// lines counts the logged lines. Reading it orders the agent's memory accesses after the library's,
	// which logs after it has set its fields.
	lines atomic.Int64
}

// Debugf and the others implement the library's logger.
func (l *stubLogger) Debugf(_ context.Context, format string, args ...any) { l.log(5, format, args) }
func (l *stubLogger) Infof(_ context.Context, format string, args ...any)  { l.log(4, format, args) }
func (l *stubLogger) Warnf(_ context.Context, format string, args ...any)  { l.log(2, format, args) }
func (l *stubLogger) Errorf(_ context.Context, format string, args ...any) { l.log(1, format, args) }

func (l *stubLogger) log(level int, format string, args []any) {
	l.lines.Add(1)
	if v := l.to.V(level); v.Enabled() {
		v.Info(fmt.Sprintf(format, args...))
	}
}
