// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/waking"
)

// ErrReasonListRefused is shown on a pod for the moment until it is tried again.
const ErrReasonListRefused = "the nodes with the best GPUs are refused by other plugins; all nodes are tried next"

// ErrReasonReleasing begins the status of a pod that waits for devices that become free without an
// eviction.
const ErrReasonReleasing = "preemption: " + releasing

// ErrReasonNoNode is the reason for which a waiting pod is kept out of the queue.
const ErrReasonNoNode = "no node has what the pod asks for; it is tried when one has"

// PostFilter runs before the default preemption. If other plugins refused every node that PreFilter
// listed, no eviction is needed yet: the pod is tried again at once, on all nodes. Otherwise a pod with
// GPUs waits for devices that become free without an eviction, or preempts victims of this plugin's
// choice. The result is final: if it finds no victims, the default preemption, which uses the same
// filters, finds none either. Pods without GPUs are left to the default preemption, or to its replacement
// in the profile, unless gangs are placed, and pods of gangs to GangPlacement.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, m fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c := lifecycle.ReadCycle(state)
	if p.Profile.IsMember(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	if c != nil && c.Narrowed {
		p.preSelector.RetryOnAllNodes(p.logger, pod, p.Handle())
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonListRefused)
	}
	// All nodes were tried; after the next change a list is useful again.
	p.preSelector.EndRetry(pod.UID)
	if c == nil || !c.Demand.HasGPUs() {
		return p.plainPostFilter(ctx, state, pod, m)
	}
	inMetric, slow := c.Refused(), c.RefusedFor(placement.LowBandwidth) // before preemption simulates other states
	if !p.PreemptionEnabled() {
		p.waiting.Add(&waking.RefusedPod{Pod: pod, Demand: c.Demand, Exempt: nominated(pod, nil), InMetric: inMetric})
		return nil, p.besideRings(fwk.NewStatus(fwk.Unschedulable), slow, c, m)
	}
	metrics.PreemptionAttempts.Inc()
	result, comes, status := p.preemptor.preempt(ctx, state, pod, m)
	p.waiting.Add(&waking.RefusedPod{Pod: pod, Demand: c.Demand, Exempt: comes || nominated(pod, result), InMetric: inMetric})
	return result, p.besideRings(said(pod, status), slow, c, m)
}

// plainPostFilter is PostFilter for a pod without GPUs. Where gangs are placed, the preemption for it must
// not break one, which the default preemption would.
func (p *Plugin) plainPostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, m fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if p.Profile.Placed == nil || !p.PreemptionEnabled() {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	metrics.PreemptionAttempts.Inc()
	result, status := p.preemptor.evictPlain(ctx, state, pod, m)
	return result, said(pod, status)
}

// said returns the status of a preemption in the form for PostFilter.
func said(pod *v1.Pod, status *fwk.Status) *fwk.Status {
	code := status.Code()
	if code == fwk.Unschedulable && len(pod.Spec.ResourceClaims) == 0 {
		// Other plugins may still help a pod with claims: their PostFilter releases unused devices of its
		// claims.
		code = fwk.UnschedulableAndUnresolvable
	}
	if msg := status.Message(); msg != "" {
		return fwk.NewStatus(code, "preemption: "+msg)
	}
	if code == status.Code() {
		return status
	}
	return fwk.NewStatus(code)
}

// nominated reports whether a pod has a nominated node after its preemption.
func nominated(pod *v1.Pod, r *fwk.PostFilterResult) bool {
	if r != nil && r.NominatingInfo != nil && r.Mode() == fwk.ModeOverride {
		return r.NominatedNodeName != ""
	}
	return pod.Status.NominatedNodeName != ""
}

// PreEnqueue keeps a pod out of the queue while its victims are evicted in the background, and while it
// waits and no node would take it. Otherwise, with a thousand waiting pods, the queue would try each of
// them whenever one device becomes free.
func (p *Plugin) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	if p.preemptor.evaluator.IsPodRunningPreemption(pod.UID) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waiting for the preemption for this pod to be finished")
	}
	if p.Profile.IsMember(pod) {
		return nil // it may still be on the list from before it became a member
	}
	gated, inMetric := p.waiting.Gated(pod)
	if !gated {
		return nil
	}
	if inMetric {
		// The queue adds one for each refusal here, and subtracts one when the pod is
		// tried.
		metrics.UnschedulableReason(Name, pod.Spec.SchedulerName).Dec()
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNoNode)
}
