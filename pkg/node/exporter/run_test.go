// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

// timeline records when the stub was asked for what, in virtual time.
type timeline struct {
	mu    sync.Mutex
	start time.Time
	at    map[string][]time.Duration // request -> times since start; guarded by mu
}

func (l *timeline) times(req string) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at[req]
}

// running starts an exporter in virtual time; stop ends it and waits.
func running(t *testing.T, src *scripted, refuse func(request) *metav1.Status) (line *timeline, stop func()) {
	t.Helper()
	api := newStub()
	line = &timeline{start: time.Now(), at: map[string][]time.Duration{}}
	api.refuse = func(r request) *metav1.Status {
		line.mu.Lock()
		line.at[r.String()] = append(line.at[r.String()], time.Since(line.start))
		line.mu.Unlock()
		if refuse == nil {
			return nil
		}
		return refuse(r)
	}
	kube, dyn := api.clients(t)
	e, err := New(Config{NodeName: "n1"}, src, kube, dyn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	return line, func() {
		t.Helper()
		cancel()
		before := time.Now()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context ended", err)
		}
		if took := time.Since(before); took != 0 {
			t.Errorf("Run took %s to end", took)
		}
	}
}

// TestLeaseRenewal: the Lease is renewed about every 30 seconds.
func TestLeaseRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scripted{graph: uniform(t, 2, "L40S", "PHB")}
		line, stop := running(t, src, nil)
		pass(time.Hour)
		stop()
		renewals := line.times(putLease)
		if len(renewals) < 3600/36 || len(renewals) > 3600/24 {
			t.Errorf("%d renewals in an hour", len(renewals))
		}
		if renewals[0] != 0 {
			t.Errorf("the first renewal came after %s", renewals[0])
		}
		distinct := map[time.Duration]bool{}
		for i := 1; i < len(renewals); i++ {
			gap := renewals[i] - renewals[i-1]
			distinct[gap] = true
			if gap < 25*time.Second || gap > 35*time.Second {
				t.Errorf("renewal %d came %s after the one before", i, gap)
			}
		}
		if len(distinct) < 10 {
			t.Errorf("only %d distinct gaps: the jitter is missing", len(distinct))
		}
		// An unchanged node writes nothing else: 1 spec, 1 status, labels of two managers.
		for req, want := range map[string]int{putSpec: 1, putStatus: 1, putLabels: 2} {
			if n := len(line.times(req)); n != want {
				t.Errorf("%s: %d times in an hour", req, n)
			}
		}
		if src.reads.Load() != 121 { // at 0 s, 30 s, …, 3600 s
			t.Errorf("%d readings in an hour", src.reads.Load())
		}
	})
}

// TestEventReadings: events cause readings, and bursts only one a second.
func TestEventReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scripted{graph: uniform(t, 2, "L40S", "PHB"), events: make(chan Event)}
		_, stop := running(t, src, nil)
		pass(10 * time.Second)
		before := src.reads.Load()
		src.events <- Event{UUID: "GPU-1", Xid: 79}
		synctest.Wait()
		if src.reads.Load() != before+1 {
			t.Errorf("%d readings at once after an event, want 1", src.reads.Load()-before)
		}
		before = src.reads.Load()
		for range 500 { // 5 s of events
			src.events <- Event{}
			pass(10 * time.Millisecond)
		}
		if n := src.reads.Load() - before; n < 4 || n > 6 {
			t.Errorf("%d readings in 5 s of events, want one a second", n)
		}
		// After a source gave up its events, the interval goes on.
		close(src.events)
		before = src.reads.Load()
		pass(5 * time.Minute)
		if n := src.reads.Load() - before; n < 9 || n > 11 {
			t.Errorf("%d readings in 5 min without events, want one every 30 s", n)
		}
		stop()
	})
}

// TestRetryBackoff: failures are retried with backoff.
func TestRetryBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healed atomic.Bool
		line, stop := running(t, &scripted{graph: uniform(t, 2, "L40S", "PHB")}, func(r request) *metav1.Status {
			if r.String() == putSpec && !healed.Load() {
				return failure(http.StatusForbidden, metav1.StatusReasonForbidden, "no")
			}
			return nil
		})
		pass(3 * time.Minute)
		tries := line.times(putSpec)
		var gaps []time.Duration
		for i := 1; i < len(tries); i++ {
			gaps = append(gaps, tries[i]-tries[i-1])
		}
		want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 30}
		for i := range min(len(want), len(gaps)) {
			if hi := want[i] * time.Second; gaps[i] > hi || gaps[i] < hi*4/5 {
				t.Errorf("retry %d came after %s, want %s less at most a fifth", i, gaps[i], hi)
			}
		}
		if len(gaps) < len(want) {
			t.Errorf("%d retries in 3 min, want at least %d", len(gaps), len(want))
		}
		if n := len(line.times(putLease)); n != 0 {
			t.Errorf("%d renewals of a Lease that vouches for nothing", n)
		}
		healed.Store(true)
		pass(31 * time.Second)
		if n := len(line.times(putLease)); n == 0 {
			t.Error("no Lease within an interval of being allowed to write")
		}
		stop()
	})
}

// A driver that does not answer must not make a node look dead whose object is right.
func TestLeaseWithSlowDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scripted{graph: uniform(t, 2, "L40S", "PHB"), events: make(chan Event)}
		line, stop := running(t, src, nil)
		pass(10 * time.Second)
		src.hold(make(chan struct{}))
		pass(10 * time.Minute)
		renewals := line.times(putLease)
		if got := time.Since(line.start) - renewals[len(renewals)-1]; got > nodelease.Next(1) {
			t.Errorf("the last renewal was %s ago", got)
		}
		stop() // also while the source hangs
	})
}

// TestHealthy: Healthy tells whether rounds end.
func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube, dyn := newStub().clients(t)
		src := &scripted{err: errors.New("no driver")}
		e, err := New(Config{NodeName: "n1"}, src, kube, dyn)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		pass(time.Hour)
		if err := e.Healthy(); err != nil {
			t.Errorf("failing reads make the process unhealthy: %v", err)
		}
		src.hold(make(chan struct{}))
		pass(10 * time.Minute)
		if e.Healthy() == nil {
			t.Error("a round that does not end leaves the process healthy")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestDriverLibraryMismatch: a process with the library of another driver publishes that and ends.
func TestDriverLibraryMismatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scripted{graph: uniform(t, 2, "L40S", "PHB")}
		api := newStub()
		kube, dyn := api.clients(t)
		e, err := New(Config{NodeName: "n1"}, src, kube, dyn)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Run(t.Context()) }()
		pass(10 * time.Second)
		src.fail(&nvml.Error{Call: "nvmlInit", Kind: nvml.KindMismatch, Text: "Driver/library version mismatch"})
		pass(time.Minute)
		select {
		case err = <-done:
		default:
			t.Fatal("the process runs on a minute after its library stopped fitting")
		}
		if !nvml.IsMismatch(err) || !strings.Contains(err.Error(), "must be restarted") {
			t.Errorf("Run returned %v", err)
		}
		if c := readyOf(t, api.topology(t)); c.Reason != ReasonReadFailed || !strings.Contains(c.Message, "version mismatch") {
			t.Errorf("Ready is %s: %s", c.Reason, c.Message)
		}
	})
}

// TestManyExporters: many exporters in one process are cheap and leave nothing.
func TestManyExporters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		const n = 64
		before := runtime.NumGoroutine()
		var stops []func()
		var lines []*timeline
		for range n {
			line, stop := running(t, &scripted{graph: uniform(t, 8, "H200", "NV18")}, nil)
			lines, stops = append(lines, line), append(stops, stop)
		}
		pass(10 * time.Minute)
		during := runtime.NumGoroutine()
		for _, stop := range stops {
			stop()
		}
		for i, line := range lines {
			if got := len(line.times(putLease)); got < 17 {
				t.Errorf("exporter %d renewed its Lease %d times in 10 min", i, got)
			}
		}
		// Run, its lease loop, and this test's helper.
		if during-before > 3*n {
			t.Errorf("%d goroutines for %d exporters", during-before, n)
		}
	})
}

// pass lets time go by and everything it sets off come to rest, so that the
// test may look at and change what the exporter's goroutines use.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
