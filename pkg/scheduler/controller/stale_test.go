// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
)

// reportedNodes are reports that the test sets; the written condition Stale shows in them, as it does
// through the informer.
type reportedNodes struct {
	t       *testing.T
	clock   *clocktesting.FakeClock
	nodes   map[string]*topologies.Report
	refused error // of the next write
	written []string
	events  *events.FakeRecorder
	*StaleReporter
}

func newReportedNodes(t *testing.T, names ...string) *reportedNodes {
	t.Helper()
	s := &reportedNodes{
		t: t, clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)), nodes: map[string]*topologies.Report{}, events: events.NewFakeRecorder(1000),
	}
	for _, name := range names {
		s.nodes[name] = &topologies.Report{
			Node: testobj.Node(name).UID("node-" + name).Obj(), Object: types.UID("object-" + name),
		}
	}
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("patch", "nodegputopologies", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p, ok := a.(clienttesting.PatchAction)
		if !ok || p.GetPatchType() != types.ApplyPatchType || p.GetSubresource() != "status" {
			return true, nil, fmt.Errorf("unexpected request %v", a)
		}
		return true, &unstructured.Unstructured{}, s.wrote(p)
	})
	s.StaleReporter = NewStaleReporter(s, client, s.events, s.clock)
	s.term()
	return s
}

// term begins another leader's term, which does not know the earlier reports.
func (s *reportedNodes) term() { s.StaleReporter.nodes = map[string]*told{} }

func (s *reportedNodes) Reports() (out []topologies.Report) {
	for _, r := range s.nodes {
		out = append(out, *r)
	}
	return out
}

func (s *reportedNodes) wrote(p clienttesting.PatchAction) error {
	var body struct {
		Metadata struct{ UID types.UID }
		Status   struct{ Conditions []metav1.Condition }
	}
	if err := json.Unmarshal(p.GetPatch(), &body); err != nil {
		return err
	}
	r := s.nodes[p.GetName()]
	if len(body.Status.Conditions) != 1 || body.Metadata.UID != r.Object {
		return fmt.Errorf("unexpected body %s", p.GetPatch())
	}
	if err := s.refused; err != nil {
		s.refused = nil
		return err
	}
	c := body.Status.Conditions[0]
	r.Stale = new(c.Status == metav1.ConditionTrue)
	s.written = append(s.written, fmt.Sprint(p.GetName(), " ", c.Type, " ", c.Status, " ", c.Reason))
	return nil
}

// after lets time pass in checks and returns the writes and events meanwhile.
func (s *reportedNodes) after(ctx context.Context, d time.Duration) []string {
	for end := s.clock.Now().Add(d); s.clock.Now().Before(end); s.clock.Step(lookInterval) {
		s.look(ctx)
	}
	out := s.written
	s.written = nil
	for {
		select {
		case e := <-s.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func (s *reportedNodes) expect(d time.Duration, what string, want ...string) {
	s.t.Helper()
	got := s.after(s.t.Context(), d)
	for i := range got {
		for _, w := range want {
			if strings.HasPrefix(got[i], w) {
				got[i] = w
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("%s (-want,+got):\n%s", what, diff)
	}
}

// TestGraphFreshnessEvents: each change of the freshness of a graph is reported once.
func TestGraphFreshnessEvents(t *testing.T) {
	s := newReportedNodes(t, "a")
	s.expect(5*time.Minute, "while all is well")
	s.nodes["a"].Reason = placement.StaleGraph
	s.expect(10*time.Second, "at once")
	s.expect(5*time.Minute, "when the exporter is silent", "a Stale True ExporterSilent", "Warning StaleTopology the exporter does not renew", "Warning StaleTopology no GPUs of this node")
	s.term()
	s.expect(5*time.Minute, "by the next leader")
	s.nodes["a"].Reason = placement.Fits
	s.expect(5*time.Minute, "when it is back", "a Stale False Fresh", "Normal FreshTopology GPUs are chosen by", "Normal FreshTopology GPUs of this node")
	s.nodes["a"].Reason = placement.StaleGraph
	s.expect(10*time.Second, "at a short silence")
	s.nodes["a"].Reason = placement.Fits
	s.expect(5*time.Minute, "after it")
	s.nodes["a"].Reason, s.refused = placement.NodeReplaced, errors.New("no server")
	s.expect(5*time.Minute, "when the node is another one", "a Stale True NodeReplaced", "Warning StaleTopology this graph is of", "Warning StaleTopology no GPUs of this node")
}

// TestStaleWithin: a graph that becomes invalid is reported within StaleWithin, at any time between two
// checks, and though checks come a little early or late.
func TestStaleWithin(t *testing.T) {
	const early = time.Millisecond // of the check that would be the last one before the report
	for _, steps := range [][]time.Duration{
		{lookInterval, lookInterval, lookInterval, lookInterval, lookInterval},
		{lookInterval, lookInterval, lookInterval, lookInterval - early, lookInterval + early},
	} {
		s := newReportedNodes(t, "a")
		s.look(t.Context())
		stopped := s.clock.Now().Add(early) // just after a check
		s.nodes["a"].Reason = placement.StaleGraph
		for _, step := range steps {
			if len(s.written) == 0 {
				s.clock.Step(step)
				s.look(t.Context())
			}
		}
		if took := s.clock.Since(stopped); len(s.written) != 1 || took > StaleWithin || took < staleFor {
			t.Errorf("steps %v: %v after %v, want one report within %v", steps, s.written, took, StaleWithin)
		}
	}
}

// TestFreshWithin: a graph that becomes valid again is reported within StaleWithin, and within
// FreshWithin if it was reported as invalid just before.
func TestFreshWithin(t *testing.T) {
	const after = time.Millisecond // a check
	for name, tc := range map[string]struct {
		looks       int // between the report that it is invalid and its recovery
		least, most time.Duration
	}{
		"stale for a minute": {looks: int(time.Minute / lookInterval), least: staleFor, most: StaleWithin},
		"just stale":         {least: quietFor - after, most: FreshWithin},
	} {
		t.Run(name, func(t *testing.T) {
			s := newReportedNodes(t, "a")
			look := func() { s.look(t.Context()); s.clock.Step(lookInterval) }
			s.nodes["a"].Reason = placement.StaleGraph
			for range 1 + staleFor/lookInterval {
				look()
			}
			reported := s.written
			for range tc.looks {
				look()
			}
			healed := s.clock.Now().Add(after - lookInterval)
			s.nodes["a"].Reason, s.written = placement.Fits, nil
			for len(s.written) == 0 && s.clock.Since(healed) < time.Hour {
				look()
			}
			took := s.clock.Since(healed) - lookInterval
			if len(reported) != 1 || took < tc.least || took > tc.most {
				t.Errorf("%v, then %v after %v, want one report each, the second within %v to %v", reported, s.written, took, tc.least, tc.most)
			}
		})
	}
}

// TestFlappingNodeEvents: a flapping node is not reported all the time.
func TestFlappingNodeEvents(t *testing.T) {
	s := newReportedNodes(t, "a")
	said := 0
	for range 60 { // half an hour
		s.nodes["a"].Reason = placement.StaleGraph
		said += len(s.after(t.Context(), 15*time.Second))
		s.nodes["a"].Reason = placement.Fits
		said += len(s.after(t.Context(), 15*time.Second))
	}
	if said > 3*30*60/int(quietFor/time.Second) {
		t.Errorf("%d writes and events in half an hour", said)
	}
}

// TestFaultEvents: faults and missing graphs are events.
func TestFaultEvents(t *testing.T) {
	s := newReportedNodes(t, "a", "b")
	s.nodes["a"].Fault = "spec.linkKinds[0].class: unknown"
	s.expect(5*time.Minute, "a fault", "Warning MalformedTopology spec.linkKinds[0].class: unknown")
	s.nodes["a"].Fault = "spec.gpus[1].id: empty"
	s.expect(5*time.Minute, "another one", "Warning MalformedTopology spec.gpus[1].id: empty")
	s.nodes["a"].Fault = ""
	s.expect(5*time.Minute, "none")

	s.nodes["b"].Object, s.nodes["b"].Reason = "", placement.NoGraph
	s.expect(missingFor, "a node that is new")
	s.expect(5*time.Minute, "a node without a graph", "Warning MissingTopology")
	s.nodes["b"].Reason = placement.NoDefinition
	s.expect(5*time.Minute, "a cluster without the definition")
}

// TestNoExporterEvents: a cluster without exporters is reported slowly.
func TestNoExporterEvents(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprint("n", i))
	}
	s := newReportedNodes(t, names...)
	s.look(t.Context())
	for _, r := range s.nodes {
		r.Reason = placement.StaleGraph
	}
	s.look(t.Context())
	s.clock.Step(staleFor)
	for total := 0; total < 3*len(names); {
		s.look(t.Context())
		got := len(s.after(t.Context(), 0))
		if total += got; got == 0 || got > 3*maxReports {
			t.Fatalf("%d writes and events in one look, want more than none and at most %d", got, 3*maxReports)
		}
		s.clock.Step(lookInterval)
	}
}
