// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/faults"
	"github.com/nvtopo/nvtopo/manifests"
)

const (
	// serverTimeout bounds the API server's work on a request, and lateness is how late one may reach it
	// after its client gave up; delays are at most slowest.
	serverTimeout = 6 * time.Second
	lateness      = 1500 * time.Millisecond
	slowest       = time.Second
	// requestTimeout is the schedulers' argument: longer than both together, as its documentation requires.
	requestTimeout = 9 * time.Second
	// A leader gives up renewDeadline after it last renewed its Lease. Requests that it sent before are
	// completed before its successor begins, leaseDuration after. A shorter difference would give GPUs out
	// twice without any pause.
	leaseDuration = 15 * time.Second
	renewDeadline = 6 * time.Second
	retryPeriod   = time.Second
	// scheduleTimeout is how long a gang may stay partly bound.
	scheduleTimeout = 30 * time.Second
	// anyModelAfter is how long a replacement waits for the model of its gang: short, so that free GPUs do
	// not stay unused after the churn.
	anyModelAfter = 30 * time.Second
	// lostLease is the exit code of a leader that could not renew its Lease, which happens on an overloaded
	// machine. That of a panic is higher.
	lostLease = 1
	// drainAfter is how long a gang waits before places are kept for it, and drainFor how long they are
	// kept: the least allowed values.
	drainAfter, drainFor = 20 * time.Second, time.Minute
	// askTime bounds one request to a scheduler, which may be paused. It is retried.
	askTime = 10 * time.Second
	// revive is the pause before an ended scheduler is restarted.
	revive = 500 * time.Millisecond
)

// replica is one of the two schedulers, with the proxy between it and the API server.
type replica struct {
	name  string
	w     *testEnv
	proxy *faults.Proxy
	debug string // address of its state

	mu     sync.Mutex // held while the process is started or ended
	sched  *devcluster.Scheduler
	down   bool // killed and not to be started yet; guarded by mu
	killed bool // the soak ended the last process; guarded by mu
}

// schedulerConfig returns the shipped configuration in both its forms as two profiles, with leader
// election and retries fast enough for a run of minutes.
func schedulerConfig(debugAddress string) ([]byte, error) {
	var out map[string]any
	var all []any
	for i, path := range []string{manifests.SchedulerConfigPath, manifests.SchedulerConfigBindingPath} {
		text, err := manifests.FS.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var c map[string]any
		if err := yaml.Unmarshal(text, &c); err != nil {
			return nil, err
		}
		profile, ok := c["profiles"].([]any)[0].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s has no profile", path)
		}
		profile["schedulerName"] = profiles[i]
		for _, p := range profile["pluginConfig"].([]any) {
			if a, ok := p.(map[string]any)["args"].(map[string]any); ok && a["annotationWrite"] != nil {
				a["requestTimeout"], a["debugAddress"] = requestTimeout.String(), debugAddress
				a["leaderLease"] = map[string]any{"name": "nvtopo-scheduler", "durationSeconds": int(renewDeadline / time.Second)}
			}
		}
		profile["pluginConfig"] = append(profile["pluginConfig"].([]any), map[string]any{
			"name": "GangPlacement", "args": map[string]any{
				"scheduleTimeout": scheduleTimeout.String(), "anyModelAfter": anyModelAfter.String(),
				"drainAfter": drainAfter.String(), "drainFor": drainFor.String(),
			},
		})
		all, out = append(all, profile), c
	}
	out["profiles"] = all
	out["podInitialBackoffSeconds"], out["podMaxBackoffSeconds"] = 1, 3
	out["enableProfiling"] = true // to read the live heap after a collection
	election, ok := out["leaderElection"].(map[string]any)
	if !ok {
		return nil, errors.New("the shipped configuration has no leader election")
	}
	election["leaseDuration"], election["renewDeadline"], election["retryPeriod"] = leaseDuration.String(), renewDeadline.String(), retryPeriod.String()
	return yaml.Marshal(out)
}

// startSchedulers starts two schedulers, each behind a proxy of its own.
func (e *testEnv) startSchedulers(t *testing.T, binary string, log io.Writer) {
	t.Helper()
	for i, name := range []string{"scheduler-a", "scheduler-b"} {
		port, err := devcluster.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		r := &replica{name: name, w: e, debug: fmt.Sprintf("127.0.0.1:%d", port)}
		config, err := schedulerConfig(r.debug)
		if err != nil {
			t.Fatal(err)
		}
		if r.proxy, err = e.cluster.StartProxy(t.Context(), e.seed<<8|uint64(i)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.proxy.Close(); err != nil {
				t.Errorf("close the proxy: %v", err)
			}
		})
		if r.sched, err = e.cluster.StartScheduler(t.Context(), devcluster.SchedulerOptions{
			Binary: binary, Config: config, ServiceAccount: systemNamespace + "/nvtopo-scheduler", Server: r.proxy.URL(), Log: log,
		}); err != nil {
			t.Fatal(err)
		}
		e.schedulers = append(e.schedulers, r)
		e.run(r.supervise)
	}
}

// supervise restarts the process when it ended, as a Deployment does.
func (r *replica) supervise(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(revive):
		}
		r.mu.Lock()
		if !r.down && !r.sched.Alive() {
			r.w.disturb("a scheduler that ended")
			r.w.lost()
			r.w.mark("%s had ended with exit code %d", r.name, r.sched.ExitCode())
			r.w.count("scheduler processes started again", 1)
			if code := r.sched.ExitCode(); !r.killed && (code > lostLease || code < 0) {
				r.w.fail("%s ended with exit code %d, which the soak did not cause", r.name, code)
			}
			err := r.sched.Restart(ctx)
			if err != nil {
				r.w.note("start %s: %v", r.name, err)
			}
			r.killed = err != nil && r.sched.ExitCode() < 0 // Restart kills a process that does not become healthy
		}
		r.mu.Unlock()
	}
}

// kill ends the process for a while.
func (r *replica) kill(ctx context.Context, away time.Duration) error {
	r.w.mark("%s is killed", r.name)
	r.w.disturb("a scheduler that was killed")
	r.mu.Lock()
	r.down = true
	r.killed = r.killed || r.sched.Alive()
	err := r.sched.Kill()
	r.mu.Unlock()
	if err != nil {
		return err
	}
	r.w.lapse(ctx, away)
	r.mu.Lock()
	r.down = false
	r.mu.Unlock()
	return nil
}

// pause pauses the process for a while.
func (r *replica) pause(ctx context.Context, length time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock() // excludes start and kill
	if err := r.sched.Pause(); err != nil {
		return err
	}
	r.w.mu.Lock()
	r.w.paused++
	r.w.mu.Unlock()
	r.w.lapse(ctx, length)
	err := r.sched.Resume()
	r.w.mu.Lock()
	r.w.paused--
	r.w.resumed = true
	r.w.mu.Unlock()
	r.w.mark("%s goes on", r.name)
	r.w.disturb("a scheduler that was paused")
	return err
}

// leads reports whether the process is the leader.
func (r *replica) leads(ctx context.Context) bool {
	if !r.sched.Alive() {
		return false
	}
	m, err := r.metrics(ctx)
	return err == nil && m[`leader_election_master_status{name="kube-scheduler"}`]+m[`leader_election_master_status{name="nvtopo-scheduler"}`] > 0
}

// metrics reads the process's metrics, as the administrator.
func (r *replica) metrics(ctx context.Context) (map[string]float64, error) {
	body, err := r.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			out[line[:at]] = v
		}
	}
	return out, nil
}

// get reads a path of the process's HTTPS server, which authenticates the administrator by certificate
// and so needs no request to the API server.
func (r *replica) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	cfg := rest.CopyConfig(r.w.cluster.RESTConfig())
	cfg.Insecure, cfg.CAData, cfg.CAFile = true, nil, "" // self-signed in its own folder
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", r.sched.Port(), path), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s of %s: %s: %s", path, r.name, resp.Status, bytes.TrimSpace(body[:min(len(body), 200)]))
	}
	return body, err
}

// leader returns the leading replica, nil if there is none.
func (e *testEnv) leader(ctx context.Context) *replica {
	for _, r := range e.schedulers {
		if r.leads(ctx) {
			return r
		}
	}
	return nil
}

// follower returns a running replica that does not lead.
func (e *testEnv) follower(ctx context.Context) *replica {
	l := e.leader(ctx)
	for _, r := range e.schedulers {
		if r != l && r.sched.Alive() {
			return r
		}
	}
	return nil
}

// rules returns the permanent faults, times a factor; slow is the share of delayed requests, wait their
// delay. If processes are to live, requests for Leases are left alone, since a process that loses its
// Lease ends, and so are watches of pods: a process that lists again ends if a pod was recreated under
// its name meanwhile, on another node (kubernetes/kubernetes#141255).
func rules(factor, slow float64, wait time.Duration, deadly bool) []faults.Rule {
	all := []faults.Rule{
		{Kind: faults.Slow, On: faults.Writes, Share: slow, AtMost: wait},
		{Kind: faults.Slow, On: faults.Reads, Share: slow, AtMost: wait},
		{Kind: faults.Conflict, On: faults.Writes, Share: 0.01 * factor},
		{Kind: faults.TooMany, On: faults.Writes, Share: 0.01 * factor},
		{Kind: faults.Internal, On: faults.Writes, Share: 0.01 * factor},
		{Kind: faults.Unavailable, On: faults.Writes, Share: 0.01 * factor},
		{Kind: faults.Refused, On: faults.Writes, Share: 0.01 * factor},
		{Kind: faults.Lost, On: faults.Writes, Share: 0.02 * factor},
		{Kind: faults.TimedOut, On: faults.Writes, Share: 0.02 * factor},
		{Kind: faults.Late, On: faults.Writes, Share: 0.02 * factor, AtMost: lateness},
		{Kind: faults.Unavailable, On: faults.Reads, Share: 0.01 * factor},
		{Kind: faults.Refused, On: faults.Reads, Share: 0.01 * factor},
		{Kind: faults.Refused, On: faults.Watches, Share: 0.02 * factor},
		{Kind: faults.Expired, On: faults.Watches, Share: 0.05 * factor},
		{Kind: faults.ConflictAfter, On: faults.Writes, Share: 0.02 * factor},
		{Kind: faults.InternalAfter, On: faults.Writes, Share: 0.01 * factor},
		{Kind: faults.UnavailableAfter, On: faults.Writes, Share: 0.01 * factor},
	}
	for i := range all {
		// A Lease written late would be a renewal.
		if !deadly && all[i].On != faults.Watches || all[i].Kind == faults.Late {
			all[i].Without = []string{"leases"}
		}
		if !deadly && all[i].On == faults.Watches {
			all[i].Without = []string{"pods"}
		}
	}
	return all
}

// impose sets the faults of churn: the usual ones times a factor, with a share of slow requests.
func (e *testEnv) impose(factor, slow float64, wait time.Duration) {
	e.mu.Lock()
	e.faultsNow = rules(factor, slow, wait, e.deadly)
	e.mu.Unlock()
	e.setFaults()
}

// setFaults sets the proxies' faults for all requests, and for those about PodGroups.
func (e *testEnv) setFaults() {
	e.mu.Lock()
	r := slices.Concat(e.faultsNow, e.groupFaults)
	e.mu.Unlock()
	for _, s := range e.schedulers {
		s.proxy.Set(r)
	}
}

// usual sets the ordinary faults of churn.
func (e *testEnv) usual() { e.impose(1, 0.1, 200*time.Millisecond) }

// none removes all faults.
func (e *testEnv) none() {
	e.mu.Lock()
	e.faultsNow, e.groupFaults = nil, nil
	e.mu.Unlock()
	e.setFaults()
	for _, s := range e.schedulers {
		s.proxy.DelayWatches(0)
	}
}
