// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// publisher keeps our part of the status as wanted. Only the round uses it.
type publisher struct {
	api  client
	sent *v1alpha1.NodeGPUTopologyStatus // our part as last accepted by the API server; nil before
	at   written                         // the version of the object with sent
	// refused is the API server's error for rejected, which it does not store. The
	// status from before stays, and the condition says so.
	refused  error
	rejected []v1alpha1.Allocation
}

// refusedBefore returns the error if the API server is known to refuse these
// allocations.
func (p *publisher) refusedBefore(want *v1alpha1.NodeGPUTopologyStatus) error {
	if p.refused != nil && !apiequality.Semantic.DeepEqual(want.Allocations, p.rejected) {
		p.refused, p.rejected = nil, nil
	}
	return p.refused
}

// publish brings our part of the observed object up to date and reports whether it
// wrote.
func (p *publisher) publish(ctx context.Context, observed *v1alpha1.NodeGPUTopology, want *v1alpha1.NodeGPUTopologyStatus, now time.Time) (bool, error) {
	have := p.have(observed)
	stamp(want.Conditions, have.Conditions, metav1.NewTime(now.Truncate(time.Second)))
	if sameStatus(want, have) {
		return false, nil
	}
	at, err := p.api.applyStatus(ctx, want)
	if err != nil {
		// If what replaced a rejected record is refused too, that says nothing new.
		if apierrors.IsInvalid(err) && p.refused == nil {
			p.refused, p.rejected = err, want.Allocations
		}
		return false, err
	}
	p.sent, p.at = want, at
	return true, nil
}

// publishable returns the entries within the limits of the schema, and how many
// containers, devices or CPU lists are beyond them. Each device is published with at
// least one of its containers before other containers that add no device.
func publishable(entries []entry) (list []v1alpha1.Allocation, dropped int) {
	devices, cpus := 0, 0
	for _, i := range covering(entries) {
		a := entries[i].Allocation
		ids := slices.DeleteFunc(slices.Clone(a.GPUs), func(id string) bool { return len(id) > maxDeviceID })
		ids = ids[:min(len(ids), maxDevices, v1alpha1.MaxAllocatedGPUs-devices)]
		dropped += len(a.GPUs) - len(ids)
		devices += len(ids)
		a.GPUs = ids
		if cpus += len(a.CPUs); cpus > v1alpha1.MaxAllocatedCPUs {
			cpus -= len(a.CPUs)
			a.CPUs = ""
			dropped++
		}
		list = append(list, a)
	}
	return list, dropped + len(entries) - len(list)
}

// covering returns the positions of the entries to publish, in ascending order: all of
// them, or as many as the limit allows. Entries with a device that no earlier entry has
// come first.
func covering(entries []entry) []int {
	seen := map[string]bool{}
	var first, rest []int
	for i := range entries {
		added := len(seen)
		for _, id := range entries[i].GPUs {
			seen[id] = true
		}
		if len(seen) > added {
			first = append(first, i)
		} else {
			rest = append(rest, i)
		}
	}
	all := append(first, rest...)
	all = all[:min(len(all), v1alpha1.MaxAllocations)]
	slices.Sort(all)
	return all
}

// have is our part as the API server has it, as far as we know: the informer's object,
// unless our last write is newer.
func (p *publisher) have(observed *v1alpha1.NodeGPUTopology) *v1alpha1.NodeGPUTopologyStatus {
	if p.sent != nil && p.at.uid == observed.UID {
		if order, err := resourceversion.CompareResourceVersion(observed.ResourceVersion, p.at.version); err == nil && order <= 0 {
			return p.sent
		}
	}
	return &observed.Status
}

// sameStatus reports whether the server has all of the wanted part and no more
// allocations than that. Other fields and conditions belong to others.
func sameStatus(want, have *v1alpha1.NodeGPUTopologyStatus) bool {
	for _, c := range want.Conditions {
		old := meta.FindStatusCondition(have.Conditions, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message {
			return false
		}
	}
	return apiequality.Semantic.DeepEqual(want.Kubelet, have.Kubelet) &&
		apiequality.Semantic.DeepEqual(ordered(want.Allocations), ordered(have.Allocations))
}

// ordered returns the list in the order of compare; the server's order is another.
func ordered(list []v1alpha1.Allocation) []v1alpha1.Allocation {
	if slices.IsSortedFunc(list, byKey) {
		return list
	}
	return slices.SortedFunc(slices.Values(list), byKey)
}

func byKey(a, b v1alpha1.Allocation) int { return compareKeys(&a, &b) }
