// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

const (
	// moreGoroutines is the number of goroutines above the baseline that are no leak: idle connections, each
	// with a few, and the pool of binding goroutines.
	moreGoroutines = 40
	// moreHeap is the live heap above the baseline, one phase before, that is no leak. Two parts are not
	// counted. Tables of graph classes are kept for the last 16 classes, 7 MiB each for 16 GPUs, and churn
	// makes classes. client-go keeps events for 6 to 12 minutes, and their number grows with refusals of
	// pods. A phase of four minutes makes 700 pods.
	moreHeap = 10 << 20
)

// reading is the resources that one scheduler process holds.
type reading struct {
	replica    string
	pid        int
	goroutines float64
	heap       float64 // live bytes after a collection, without tables and events
	tables     float64 // bytes of the tables of graph classes
	events     float64 // bytes of client-go's cache of events, estimated from samples of the heap
	claims     float64
	attempts   float64 // in flight in the scheduling queue
}

func (r *reading) String() string {
	return fmt.Sprintf("%s (pid %d): %.0f goroutines, %.1f MiB live heap beside %.1f MiB of tables and %.1f MiB of events, %.0f claims, %.0f attempts",
		r.replica, r.pid, r.goroutines, r.heap/(1<<20), r.tables/(1<<20), r.events/(1<<20), r.claims, r.attempts)
}

// eventBytes returns the bytes of client-go's events in a heap profile.
func eventBytes(heap []byte) (float64, error) {
	p, err := profile.ParseData(heap)
	if err != nil {
		return 0, fmt.Errorf("heap profile: %w", err)
	}
	inUse := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == "inuse_space" })
	if inUse < 0 {
		return 0, errors.New("heap profile: no inuse_space")
	}
	ofEvents := func(l *profile.Location) bool {
		return slices.ContainsFunc(l.Line, func(line profile.Line) bool {
			return strings.HasPrefix(line.Function.Name, "k8s.io/client-go/tools/events.")
		})
	}
	var sum int64
	for _, s := range p.Sample {
		if slices.ContainsFunc(s.Location, ofEvents) {
			sum += s.Value[inUse]
		}
	}
	return float64(sum), nil
}

// read returns the readings of the running processes.
func (e *testEnv) read(ctx context.Context) (map[int]*reading, error) {
	out := map[int]*reading{}
	for _, r := range e.schedulers {
		if !r.sched.Alive() {
			continue
		}
		// Collects garbage first.
		heap, err := r.get(ctx, "/debug/pprof/heap?gc=1")
		if err != nil {
			return nil, err
		}
		e.leave(fmt.Sprintf("%s-%d-heap", r.name, r.sched.PID()), heap)
		events, err := eventBytes(heap)
		if err != nil {
			return nil, err
		}
		m, err := r.metrics(ctx)
		if err != nil {
			return nil, err
		}
		x := &reading{replica: r.name, pid: r.sched.PID(), goroutines: m["go_goroutines"], tables: m["scheduler_nvtopo_table_bytes"], events: events}
		x.attempts = m[`scheduler_inflight_events{event="PodPopped"}`]
		x.heap = m["go_memstats_heap_alloc_bytes"] - x.tables - x.events
		for series, v := range m {
			if strings.HasPrefix(series, "scheduler_nvtopo_claims{") {
				x.claims += v
			}
		}
		out[x.pid] = x
	}
	return out, nil
}

// nudge makes the leader run a scheduling cycle that binds no pod: settled assumed allocations are
// dropped at the start of one.
func (e *testEnv) nudge(ctx context.Context) error {
	for i, profile := range profiles {
		p := podOf(fmt.Sprintf("nudge-%d", i), &podPlan{Profile: i, GPUs: []int{1}})
		p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "nowhere"}
		err := e.try(ctx, "nudge "+profile, func(ctx context.Context) error {
			_, err := e.kube.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
			return exists(err)
		})
		if err == nil {
			err = e.try(ctx, "await "+p.Name, func(ctx context.Context) error {
				got, err := e.kube.CoreV1().Pods(namespace).Get(ctx, p.Name, metav1.GetOptions{})
				if err == nil && refusal(got) == "" {
					err = errors.New("not tried yet")
				}
				return err
			})
		}
		if err == nil {
			err = e.try(ctx, "delete "+p.Name, func(ctx context.Context) error {
				return gone(e.kube.CoreV1().Pods(namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}))
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle waits until every process holds no assumed allocation and not much more than at the baseline;
// processes without a baseline are not compared. It returns their readings and how many were compared.
func (e *testEnv) settle(ctx context.Context, t *testing.T, baseline map[int]*reading) (now map[int]*reading, compared int) {
	t.Helper()
	var why, last string
	unread := true
	err := wait.PollUntilContextTimeout(ctx, 2*time.Second, patience, true, func(ctx context.Context) (bool, error) {
		err := e.nudge(ctx)
		if err == nil {
			now, err = e.read(ctx)
		}
		switch {
		case ctx.Err() != nil: // less specific than the earlier reason
		case err != nil:
			why, unread = err.Error(), true
		default:
			unread = false
			if why, compared = leaked(now, baseline); why != "" {
				why += e.claims(ctx)
			} else {
				why = e.forgotten(ctx)
			}
		}
		if why != last {
			last = why
			e.note("not settled: %s", why)
		}
		return why == "" && ctx.Err() == nil, nil
	})
	switch {
	case err != nil && unread:
		e.fail("cannot see what the schedulers hold: %s", why)
	case err != nil:
		e.violate("leak: %s", why)
	}
	return now, compared
}

// claims lists the assumed allocations that the schedulers show.
func (e *testEnv) claims(ctx context.Context) string {
	var b strings.Builder
	for _, r := range e.schedulers {
		d, err := check.ReadScheduler(ctx, e.debug, "https://"+r.debug)
		if err != nil {
			fmt.Fprintf(&b, "; %s: %v", r.name, err)
			continue
		}
		for _, c := range d.Claims {
			fmt.Fprintf(&b, "; %s: %s (%s) on %s is %s since %.3f", r.name, c.Pod, c.UID, c.Node, c.Phase, c.Since.Sub(e.start).Seconds())
		}
	}
	return b.String()
}

// leaked describes a resource of which a process holds too much, empty if there is none.
func leaked(now, baseline map[int]*reading) (why string, compared int) {
	for _, pid := range slices.Sorted(maps.Keys(now)) {
		x, was := now[pid], baseline[pid]
		switch {
		case x.claims > 0 || x.attempts > 0:
			return x.String() + " with no pod left", compared
		case was == nil:
			continue
		case x.goroutines > was.goroutines+moreGoroutines:
			return fmt.Sprintf("%s had %.0f goroutines", x, was.goroutines), compared
		case x.heap > was.heap+moreHeap:
			return fmt.Sprintf("%s had %.1f MiB", x, was.heap/(1<<20)), compared
		}
		compared++
	}
	return "", compared
}

// errLeft reports a left-over object of a node that is gone.
var errLeft = errors.New("left over")

// objects checks that the API server has no Lease and no graph of a removed node.
func (e *testEnv) objects(ctx context.Context) error {
	want := map[string]bool{"nvtopo-scheduler": true, "nvtopo-controller": true}
	for _, b := range e.boxes {
		want[nodelease.ExporterPrefix+b.name] = true
		if b.agent {
			want[nodelease.AgentPrefix+b.name] = true
		}
	}
	return e.try(ctx, "no objects are left over", func(ctx context.Context) error {
		leases, err := e.kube.CoordinationV1().Leases(systemNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range leases.Items {
			if !want[leases.Items[i].Name] {
				return fmt.Errorf("Lease %s: %w", leases.Items[i].Name, errLeft)
			}
		}
		graphs, err := e.dyn.Resource(v1alpha1.GroupVersionResource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(graphs.Items) != len(e.boxes) || len(leases.Items) != len(want) {
			return fmt.Errorf("%w: %d graphs and %d Leases, want %d and %d", errLeft, len(graphs.Items), len(leases.Items), len(e.boxes), len(want))
		}
		return nil
	})
}
