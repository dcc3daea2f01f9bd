// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// publisher keeps the agent's part of the status as wanted. Only the round uses it.
type publisher struct {
	api  client
	sent *v1alpha1.NodeGPUTopologyStatus // the agent's part as last accepted by the API server; nil before
	at   written                         // the version of the object with sent
	// refused is the API server's error for rejected, which it does not store. The status from before stays,
	// and the condition reports it.
	refused  error
	rejected []v1alpha1.Allocation
}

// refusedBefore returns the earlier error if the API server has already rejected these allocations.
func (p *publisher) refusedBefore(want *v1alpha1.NodeGPUTopologyStatus) error {
	if p.refused != nil && !apiequality.Semantic.DeepEqual(want.Allocations, p.rejected) {
		p.refused, p.rejected = nil, nil
	}
	return p.refused
}

// publish brings the agent's part of the observed object up to date and reports whether it wrote.
func (p *publisher) publish(ctx context.Context, observed *v1alpha1.NodeGPUTopology, want *v1alpha1.NodeGPUTopologyStatus, now time.Time) (bool, error) {
	have := p.have(observed)
	stamp(want.Conditions, have.Conditions, metav1.NewTime(now.Truncate(time.Second)))
	if sameStatus(want, have) {
		return false, nil
	}
	at, err := p.api.applyStatus(ctx, want)
	if err != nil {
		// A rejection of the replacement for a rejected record adds no information.
		if apierrors.IsInvalid(err) && p.refused == nil {
			p.refused, p.rejected = err, want.Allocations
		}
		return false, err
	}
	p.sent, p.at = want, at
	return true, nil
}

// leftOut counts the parts that the limits of the schema exclude from publication.
type leftOut struct {
	containers int
	devices    int // of the published containers
	cpuLists   int // of the published containers
	unseen     int // devices without a published container
}

// String returns the counts as text, or "" if nothing is left out.
func (l leftOut) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{l.containers, "containers"}, {l.devices, "devices of other containers"}, {l.cpuLists, "lists of CPUs"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s are beyond the limits of %d containers with %d devices each, %d devices and %d characters of CPUs in all, and are not published",
		strings.Join(parts, " and "), v1alpha1.MaxAllocations, maxDevices, v1alpha1.MaxAllocatedGPUs, v1alpha1.MaxAllocatedCPUs)
}

// publishable returns the entries within the limits of the schema, in order. Each device is published
// with at least one of its containers before other entries are.
func publishable(entries []entry) (list []v1alpha1.Allocation, out leftOut) {
	chosen, devices := covering(entries)
	shown, cpus := map[string]bool{}, 0
	for _, i := range slices.Sorted(slices.Values(chosen)) {
		a := entries[i].Allocation
		out.devices += len(a.GPUs) - len(devices[i])
		a.GPUs = devices[i]
		for _, id := range a.GPUs {
			shown[id] = true
		}
		if cpus += len(a.CPUs); cpus > v1alpha1.MaxAllocatedCPUs {
			cpus -= len(a.CPUs)
			a.CPUs = ""
			out.cpuLists++
		}
		list = append(list, a)
	}
	out.containers = len(entries) - len(list)
	for i := range entries {
		for _, id := range entries[i].GPUs {
			if !shown[id] {
				shown[id] = true
				out.unseen++
			}
		}
	}
	return list, out
}

// covering returns the positions of the entries to publish, and which devices of each. The limits are
// spent first on devices that no earlier entry has, then on the others of these entries, then on entries
// that add no device.
func covering(entries []entry) (chosen []int, devices [][]string) {
	devices = make([][]string, len(entries))
	seen, room := map[string]bool{}, v1alpha1.MaxAllocatedGPUs
	take := func(i int, wanted func(id string) bool) {
		for _, id := range entries[i].GPUs {
			if room > 0 && len(devices[i]) < maxDevices && len(id) <= maxDeviceID && wanted(id) {
				devices[i] = append(devices[i], id)
				seen[id] = true
				room--
			}
		}
	}
	var rest []int
	for i := range entries {
		devices[i] = make([]string, 0, len(entries[i].GPUs))
		if take(i, func(id string) bool { return !seen[id] }); len(devices[i]) > 0 {
			chosen = append(chosen, i)
		} else {
			rest = append(rest, i)
		}
	}
	chosen = append(chosen, rest...)
	chosen = chosen[:min(len(chosen), v1alpha1.MaxAllocations)]
	for _, i := range chosen {
		take(i, func(id string) bool { return !slices.Contains(devices[i], id) })
		slices.Sort(devices[i])
	}
	return chosen, devices
}

// have returns the agent's part as last seen at the API server: the informer's object, unless the last
// write is newer.
func (p *publisher) have(observed *v1alpha1.NodeGPUTopology) *v1alpha1.NodeGPUTopologyStatus {
	if p.sent != nil && p.at.uid == observed.UID {
		if order, err := resourceversion.CompareResourceVersion(observed.ResourceVersion, p.at.version); err == nil && order <= 0 {
			return p.sent
		}
	}
	return &observed.Status
}

// sameStatus reports whether the server has all of the wanted part and no more allocations than that.
// Other programs own the other fields and conditions.
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

// ordered returns the list in the order of compare; the server's order differs.
func ordered(list []v1alpha1.Allocation) []v1alpha1.Allocation {
	if slices.IsSortedFunc(list, byKey) {
		return list
	}
	return slices.SortedFunc(slices.Values(list), byKey)
}

func byKey(a, b v1alpha1.Allocation) int { return compareKeys(&a, &b) }
