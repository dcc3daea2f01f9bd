// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/cordons"
)

const (
	// cordonManager is the field manager of the condition CordonAcknowledged. An apply by FieldManager would
	// remove the condition Stale.
	cordonManager = FieldManager + "-cordons"
	// cordonInterval is the time between checks of cordons: no event reports that a write was given up.
	cordonInterval = time.Second
	// cordonAgain is the time after which the condition is written again: its object may have been deleted
	// and made again.
	cordonAgain = 30 * time.Second
	// maxCordons bounds the writes of one check. A pool has one node at a time that is being divided.
	maxCordons = 20
)

// CordonSource is the scheduler that acknowledges cordons.
type CordonSource interface {
	Cordons() []cordons.Word
	CordonsSettled() bool
	KnowsItself() bool
	Leads(ctx context.Context) error
}

// CordonAcknowledger writes the condition CordonAcknowledged of the NodeGPUTopologies of nodes that the
// pool controller has cordoned. Unlike the reporters of this package it runs in every process: only the
// one that schedules knows the pods in flight, and it need not be the one that leads the reporters.
type CordonAcknowledger struct {
	source  CordonSource
	client  dynamic.Interface
	clock   clock.WithTicker
	elected func() bool // whether kube-scheduler was elected in this process

	told map[string]toldWord // by node, the last written condition
}

// toldWord is a condition and when it was written.
type toldWord struct {
	metav1.Condition

	at time.Time
}

// NewCordonAcknowledger returns a CordonAcknowledger.
func NewCordonAcknowledger(source CordonSource, client dynamic.Interface, clk clock.WithTicker) *CordonAcknowledger {
	return &CordonAcknowledger{source: source, client: client, clock: clk, elected: schedulerElected, told: map[string]toldWord{}}
}

// Run writes until ctx ends.
func (a *CordonAcknowledger) Run(ctx context.Context) {
	ticker := a.clock.NewTicker(cordonInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		a.look(ctx)
	}
}

// look writes new acknowledgements. It checks the leadership after it has read the cordons: a process
// that loses its Lease then has seen them before its successor was elected. And it reads since when it
// leads after that check, which waits for the process's own Lease.
func (a *CordonAcknowledger) look(ctx context.Context) {
	words := a.source.Cordons()
	if len(words) == 0 {
		clear(a.told)
		return
	}
	if !a.source.KnowsItself() && !a.elected() || a.source.Leads(ctx) != nil {
		return
	}
	settled := a.source.CordonsSettled()
	told, left, now := map[string]toldWord{}, maxCordons, a.clock.Now()
	for _, w := range words {
		c := acknowledgement(w, settled)
		before := a.told[w.Node]
		c.LastTransitionTime = metav1.NewTime(now)
		if before.Message == c.Message && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
			if now.Sub(before.at) < cordonAgain {
				told[w.Node] = before
				continue
			}
		}
		if left == 0 || ctx.Err() != nil {
			continue
		}
		left--
		err := a.apply(ctx, w.Node, c)
		if apierrors.IsNotFound(err) {
			continue // it is written when the node publishes again
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Acknowledging a cordon failed, will retry", "node", w.Node)
			continue
		}
		told[w.Node] = toldWord{c, now}
	}
	a.told = told
}

// acknowledgement returns the condition for a Word.
func acknowledgement(w cordons.Word, settled bool) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionCordonAcknowledged, Status: metav1.ConditionFalse}
	waits := ""
	switch {
	case len(w.InFlight) == 1:
		c.Reason, waits = v1alpha1.ReasonPodsInFlight, "pod "+w.InFlight[0]+" is being bound to the node, or may still be"
	case len(w.InFlight) > 1:
		c.Reason = v1alpha1.ReasonPodsInFlight
		waits = fmt.Sprintf("pod %s and %d more are being bound to the node, or may still be", w.InFlight[0], len(w.InFlight)-1)
	case !settled:
		c.Reason, waits = v1alpha1.ReasonTakingOver, "the scheduler was started or elected lately, and writes of another may still be carried out"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonNothingInFlight
	}
	c.Message = v1alpha1.CordonMessage(w.Token, waits)
	return c
}

// apply writes the one condition. A node without a NodeGPUTopology gets none.
func (a *CordonAcknowledger) apply(ctx context.Context, node string, c metav1.Condition) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.Kind,
		"metadata": map[string]any{"name": node},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
			"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
		}}},
	}}
	_, err := a.client.Resource(v1alpha1.GroupVersionResource).
		ApplyStatus(ctx, node, u, metav1.ApplyOptions{FieldManager: cordonManager, Force: true})
	if err != nil {
		return fmt.Errorf("apply the condition %s of %s %q: %w", c.Type, v1alpha1.Kind, node, err)
	}
	return nil
}

// schedulerElected reports whether kube-scheduler was elected in this process, according to client-go's
// gauge: a plugin has no other source before the first pod comes.
func schedulerElected() bool {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return false
	}
	for _, f := range families {
		if f.GetName() != "leader_election_master_status" {
			continue
		}
		for _, m := range f.GetMetric() {
			own := false
			for _, l := range m.GetLabel() {
				own = own || l.GetName() == "name" && l.GetValue() == LeaseName // this package's own election
			}
			if !own && m.GetGauge().GetValue() == 1 {
				return true
			}
		}
	}
	return false
}
