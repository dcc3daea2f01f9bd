// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// readKueue sets Admitted and Pinned.
func (r *reader) readKueue() {
	r.gang.Admitted = r.gang.Key.Source == SourceKueue || slices.ContainsFunc(r.pods, admitted)
	r.gang.Pinned = slices.ContainsFunc(r.pods, pinned)
}

// admitted reports whether Kueue manages the pod or made it: its quota is then in use.
func admitted(p *v1.Pod) bool {
	_, podSet := p.Labels[kueuePodSetLabel]
	_, workload := p.Annotations[kueueWorkloadKey]
	return podSet || workload || p.Labels[kueueManagedLabel] == "true"
}

// pinned reports whether Kueue's own topology-aware scheduling chooses the pod's domain. It does so by a
// node selector, before which the pod is gated.
func pinned(p *v1.Pod) bool {
	if _, ok := p.Labels[kueueTASLabel]; ok {
		return true
	}
	if slices.ContainsFunc(p.Spec.SchedulingGates, func(g v1.PodSchedulingGate) bool { return g.Name == kueueTopologyGate }) {
		return true
	}
	for _, key := range []string{kueueRequiredKey, kueuePreferredKey, kueueSliceKey} {
		level, asks := p.Annotations[key]
		if !asks {
			continue
		}
		_, selected := p.Spec.NodeSelector[level]
		_, host := p.Spec.NodeSelector[v1.LabelHostname]
		if selected || host {
			return true
		}
	}
	return false
}

// readKueueTopology reads Kueue's keys for topology requests that nvtopo's keys do not make.
func (r *reader) readKueueTopology() {
	w := &r.gang.Wishes
	if _, _, ok := r.value(RequiredKey); !ok {
		r.readLevel(kueueRequiredKey, levelRequired, &w.Required)
	}
	if _, _, ok := r.value(PreferredKey); !ok {
		r.readLevel(kueuePreferredKey, levelPreferred, &w.Preferred)
	}
	for _, key := range []string{SegmentSizeKey, RequiredSegmentKey, PreferredSegmentKey} {
		if _, _, ok := r.value(key); ok {
			return
		}
	}
	_, sized := r.read(kueueSliceSizeKey, func(v string) (err error) { w.SegmentSize, err = parseCount(v); return err })
	at, levelled := r.readLevel(kueueSliceKey, levelSegment, &w.SegmentLevel)
	switch {
	case sized && levelled:
		w.SegmentRequired = true
	case levelled: // a slice of a JobSet is a Job: only Kueue knows its size
		r.warn(at, "is not read without %s", kueueSliceSizeKey)
		fallthrough
	default:
		w.SegmentSize, w.SegmentLevel = 0, ""
	}
}
