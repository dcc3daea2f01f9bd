// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// countingSink stands where the API server takes events.
type countingSink struct{ created, patched atomic.Int64 }

func (s *countingSink) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	s.created.Add(1)
	return e, nil
}

func (s *countingSink) Update(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return e, nil
}

func (s *countingSink) Patch(_ context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	s.patched.Add(1)
	return e, nil
}

// keepingSink keeps what is created.
type keepingSink struct {
	countingSink
	last atomic.Pointer[eventsv1.Event]
}

func (s *keepingSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	s.last.Store(e)
	return s.countingSink.Create(ctx, e)
}

// TestEventReporter: an event names the agent's node, and has no more words than the API server
// takes.
func TestEventReporter(t *testing.T) {
	for name, tc := range map[string]struct{ node, note, wantInstance, wantNote string }{
		"a short note":       {"n1", "short", "n1", "short"},
		"a note of 1 KiB":    {"n1", strings.Repeat("x", 1024), "n1", strings.Repeat("x", 1024)},
		"a longer note":      {"n1", strings.Repeat("x", 2000), "n1", strings.Repeat("x", 1024)},
		"half a character":   {"n1", strings.Repeat("x", 1023) + "é", "n1", strings.Repeat("x", 1023)},
		"a long node's name": {strings.Repeat("n", 253), "short", strings.Repeat("n", 128), "short"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				sink := &keepingSink{}
				b := events.NewBroadcaster(nodeSink{sink, tc.node})
				if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
					t.Fatal(err)
				}
				pod := &v1.Pod{}
				pod.Namespace, pod.Name, pod.UID = "team", "trainer", "u"
				b.NewRecorder(scheme.Scheme, reportingController).Eventf(pod, nil, v1.EventTypeWarning, "GPUsSwapped", "Verifying", "%s", tc.note)
				synctest.Wait()
				cancel()
				b.Shutdown()
				synctest.Wait()
				got := sink.last.Load()
				if got == nil {
					t.Fatal("no event was written")
				}
				if got.ReportingController != "nvtopo-node-agent" || got.ReportingInstance != tc.wantInstance || got.Note != tc.wantNote {
					t.Errorf("%s/%s says %q, want nvtopo-node-agent/%s with %q", got.ReportingController, got.ReportingInstance, got.Note, tc.wantInstance, tc.wantNote)
				}
			})
		})
	}
}

// TestRefusalEvents: a pod refused every second is written rarely. It shows what bounds the events
// of scheduler and agent, which use this broadcaster: those of one reason on one object are one
// series, whatever they say.
func TestRefusalEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		sink := &countingSink{}
		b := events.NewBroadcaster(sink)
		if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
			t.Fatal(err)
		}
		recorder := b.NewRecorder(scheme.Scheme, reportingController)
		pod := &v1.Pod{}
		pod.Namespace, pod.Name, pod.UID = "team", "trainer", "u"
		for second := range 3600 {
			recorder.Eventf(pod, nil, v1.EventTypeWarning, "FailedScheduling", "Scheduling", "%d nodes refuse", second)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		// The first, the second, and the count twice: at every half-hour.
		if created, patched := sink.created.Load(), sink.patched.Load(); created != 1 || patched < 1 || patched > 3 {
			t.Errorf("an hour of events made %d creations and %d patches, want 1 and at most 3", created, patched)
		}
		cancel()
		b.Shutdown()
		synctest.Wait()
	})
}
