// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// eventStaleAllocation is the same reason that node agents use.
	eventStaleAllocation = "StaleAllocation"
	// foreignInterval is how often the bound pods are checked.
	foreignInterval = 15 * time.Second
	// foreignFor is how long an allocation of another pod or node must stay before it
	// is reported. After a Binding that was carried out late, the scheduler corrects
	// it, which takes a little more than its requestTimeout.
	foreignFor = 3 * time.Minute
	// maxForeign bounds the events of one check.
	maxForeign = 50
)

// Owners checks to which pod and node an allocation belongs.
type Owners interface {
	Disowned(pod *v1.Pod) error
	Enforced(node string) bool
}

// ForeignReporter sends one event to each pod that carries the allocation of another pod or node. This
// comes from a copied manifest, written by a user who may write allocations, or while the admission
// policies were missing. On a node with an agent, the agent reports it instead. Call Run while this
// process leads.
type ForeignReporter struct {
	owners   Owners
	pods     corelisters.PodLister
	recorder events.EventRecorder
	clock    clock.WithTicker

	carriers map[types.UID]*carrier // the carriers of this term
}

// carrier is a pod with an allocation that is not its own.
type carrier struct {
	why   string
	since time.Time
	told  bool
}

// NewForeignReporter returns a ForeignReporter. It reads pods from a synced lister.
func NewForeignReporter(owners Owners, pods corelisters.PodLister, recorder events.EventRecorder, clk clock.WithTicker) *ForeignReporter {
	return &ForeignReporter{owners: owners, pods: pods, recorder: recorder, clock: clk}
}

// Run reports until ctx ends. Call it for each term, one at a time.
func (f *ForeignReporter) Run(ctx context.Context) {
	f.carriers = nil
	ticker := f.clock.NewTicker(foreignInterval)
	defer ticker.Stop()
	for {
		f.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (f *ForeignReporter) look(ctx context.Context) {
	pods, err := f.pods.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Pods with allocations of others are not reported, will retry")
		return
	}
	now, left := f.clock.Now(), maxForeign
	seen := map[types.UID]*carrier{}
	for _, pod := range pods {
		err := f.owners.Disowned(pod)
		if err == nil {
			continue
		}
		c := f.carriers[pod.UID]
		if c == nil || c.why != err.Error() {
			c = &carrier{why: err.Error(), since: now}
		}
		seen[pod.UID] = c
		if c.told || left == 0 || now.Sub(c.since) < foreignFor || f.owners.Enforced(pod.Spec.NodeName) {
			continue
		}
		c.told = true
		left--
		f.recorder.Eventf(pod, nil, v1.EventTypeWarning, eventStaleAllocation, actionJudge,
			"%s: it is ignored, and the pod counts by its request", c.why)
	}
	f.carriers = seen
}
