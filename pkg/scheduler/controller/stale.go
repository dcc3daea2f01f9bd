// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
)

// FieldManager is the field manager of the conditions of NodeGPUTopologies.
const FieldManager = "nvtopo-scheduler"

const (
	// lookInterval is how often the nodes are checked.
	lookInterval = 5 * time.Second
	// staleFor is how long a graph must be stale, or fresh again, before that is
	// reported. After an outage of the API server all exporters come back within this
	// time.
	staleFor = 15 * time.Second
	// StaleWithin is the longest time from when a graph becomes invalid until its condition Stale is True:
	// the next check sees it, and the first check that is not before staleFor reports it.
	StaleWithin = lookInterval + staleFor + lookInterval
	// FreshWithin is the longest time from when a graph becomes valid again until its condition Stale is
	// False: StaleWithin, but not before quietFor is over if it has just become True.
	FreshWithin = max(StaleWithin, quietFor+lookInterval)
	// missingFor is how long a node may be without a graph: the exporter of a new node
	// must start first.
	missingFor = time.Minute
	// quietFor is the least time between two reports about one node.
	quietFor = 30 * time.Second
	// maxReports bounds the reports of one check, because each is three requests: if all
	// exporters of a cluster are gone, the reports take some minutes.
	maxReports = 50
)

// Reasons of the condition Stale and of the events.
const (
	reasonSilent     = "ExporterSilent"
	reasonUnreadable = "Unreadable"
	reasonReplaced   = "NodeReplaced"
	reasonFresh      = "Fresh"

	eventMalformedTopology = "MalformedTopology"
	eventStaleTopology     = "StaleTopology"
	eventFresh             = "FreshTopology"
	eventMissing           = "MissingTopology"
	actionJudge            = "Judging"
)

// ReportSource provides the reports.
type ReportSource interface {
	Reports() []topologies.Report
}

// StaleReporter reports nodes without a valid graph. It writes the condition Stale of their objects,
// which outlives this process, so a new leader repeats nothing, and one event for each change. Call Run
// while this process leads.
type StaleReporter struct {
	source   ReportSource
	client   dynamic.Interface
	recorder events.EventRecorder
	clock    clock.WithTicker

	nodes map[string]*told // node -> the state seen and reported in this term
}

// told is the state of one node.
type told struct {
	uid     types.UID // of the Node
	reason  placement.Reason
	since   time.Time // since when the reason holds
	last    time.Time // time of the last report
	fault   string    // the reported fault
	missing bool      // a missing graph was reported
}

// NewStaleReporter returns a StaleReporter.
func NewStaleReporter(source ReportSource, client dynamic.Interface, recorder events.EventRecorder, clk clock.WithTicker) *StaleReporter {
	return &StaleReporter{source: source, client: client, recorder: recorder, clock: clk}
}

// Run reports until ctx ends. Call it for each term, one at a time.
func (s *StaleReporter) Run(ctx context.Context) {
	s.nodes = map[string]*told{}
	ticker := s.clock.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		s.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (s *StaleReporter) look(ctx context.Context) {
	now, left := s.clock.Now(), maxReports
	seen := map[string]*told{}
	for _, r := range s.source.Reports() {
		t := s.nodes[r.Node.Name]
		if t == nil || t.uid != r.Node.UID {
			t = &told{uid: r.Node.UID, reason: r.Reason, since: now}
		}
		if t.reason != r.Reason {
			t.reason, t.since = r.Reason, now
		}
		seen[r.Node.Name] = t
		if left == 0 || ctx.Err() != nil || !t.last.IsZero() && now.Sub(t.last) < quietFor {
			continue
		}
		if s.report(ctx, &r, t, now) {
			t.last = now
			left--
		}
	}
	s.nodes = seen
}

// report reports changes of a node, and returns whether there were any.
func (s *StaleReporter) report(ctx context.Context, r *topologies.Report, t *told, now time.Time) bool {
	object := &v1.ObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind, Name: r.Node.Name, UID: r.Object}
	said := false
	if r.Fault != t.fault {
		if t.fault = r.Fault; r.Fault != "" {
			s.recorder.Eventf(object, nil, v1.EventTypeWarning, eventMalformedTopology, actionJudge, "%s", r.Fault)
			said = true
		}
	}
	steady := now.Sub(t.since)
	switch {
	case r.Object == "":
		if r.Reason != placement.NoGraph || t.missing || steady < missingFor {
			return said
		}
		t.missing = true
		s.recorder.Eventf(r.Node, nil, v1.EventTypeWarning, eventMissing, actionJudge,
			"the node has GPUs and published no NodeGPUTopology: does the exporter run there?")
		return true
	case steady < staleFor || (r.Stale != nil && *r.Stale) == (r.Reason != placement.Fits):
		return said
	}
	condition := conditionOf(r.Reason, metav1.NewTime(now.Truncate(time.Second)))
	if err := s.apply(ctx, r, condition); err != nil {
		klog.FromContext(ctx).Error(err, "Reporting whether a graph counts failed, will retry", "node", r.Node.Name)
		return true
	}
	kind, reason := v1.EventTypeWarning, eventStaleTopology
	if r.Reason == placement.Fits {
		kind, reason = v1.EventTypeNormal, eventFresh
	}
	s.recorder.Eventf(object, nil, kind, reason, actionJudge, "%s", condition.Message)
	s.recorder.Eventf(r.Node, nil, kind, reason, actionJudge, "%s", onNode[condition.Reason])
	return true
}

// onNode has the texts of the events on Nodes, by the reason of the condition.
var onNode = map[string]string{
	reasonFresh:      "GPUs of this node are chosen by its graph again",
	reasonReplaced:   "no GPUs of this node are chosen: the graph is of an earlier node of the name; the exporter of this one replaces it when it runs",
	reasonUnreadable: "no GPUs of this node are chosen: its graph cannot be read; is its exporter of a later release than the scheduler?",
	reasonSilent:     "no GPUs of this node are chosen: its exporter does not renew its Lease; does it run? kubectl -n nvtopo-system get pods -o wide",
}

func conditionOf(reason placement.Reason, now metav1.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionStale, Status: metav1.ConditionTrue, LastTransitionTime: now}
	switch reason {
	case placement.Fits:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonFresh, "GPUs are chosen by this graph"
	case placement.NodeReplaced:
		c.Reason, c.Message = reasonReplaced, "this graph is of an earlier node of the name: no GPUs are chosen by it"
	case placement.UnreadableGraph:
		c.Reason, c.Message = reasonUnreadable, "this version of the graph cannot be read: no GPUs are chosen by it or by an earlier one"
	default:
		c.Reason, c.Message = reasonSilent, "the exporter does not renew its Lease: no GPUs are chosen by this graph"
	}
	return c
}

// apply writes the one condition. With the UID, the server refuses an object that was
// created again in the meantime.
func (s *StaleReporter) apply(ctx context.Context, r *topologies.Report, c metav1.Condition) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.Kind,
		"metadata": map[string]any{"name": r.Node.Name, "uid": string(r.Object)},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
			"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
		}}},
	}}
	_, err := s.client.Resource(v1alpha1.GroupVersionResource).
		ApplyStatus(ctx, r.Node.Name, u, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("apply the condition %s of %s %q: %w", c.Type, v1alpha1.Kind, r.Node.Name, err)
	}
	return nil
}
