// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Reasons of the events on pods.
const (
	eventGPULost        = "GPULost"
	eventGPUUnhealthy   = "GPUUnhealthy"
	eventGPUPartitioned = "GPUPartitioned"
	eventGPUDegraded    = "GPUDegraded"
	eventLinkDegraded   = "LinkDegraded"
	eventGPURecovered   = "GPURecovered"
	eventLinkRecovered  = "LinkRecovered"
)

// lostPrefix begins the exporter's reason for a GPU that is gone.
const lostPrefix = "GPU is lost"

// trouble is one fault of the devices of one pod.
type trouble struct {
	reason string
	gpu    string // UUID; empty if it is about the links between the pod's GPUs
	text   string // the exporter's reason up to the colon: another text is another trouble
	note   string
	since  time.Time // zero if not known
}

// key identifies a trouble of a pod while it lasts.
type key struct{ reason, gpu, text string }

func (t *trouble) key() key { return key{t.reason, t.gpu, t.text} }

// holding has the devices of one pod of a node.
type holding struct {
	pod    *v1.Pod
	chosen *allocation.Allocation // nil if none of these schedulers chose for it
	gpus   map[string][]string    // resource -> UUIDs
}

// holdingOf returns the devices that kubelet recorded for the pod, and for containers without a record
// the chosen ones.
func holdingOf(pod *v1.Pod, all []v1alpha1.Allocation) *holding {
	h := &holding{pod: pod, chosen: choiceOf(pod), gpus: map[string][]string{}}
	add := func(resource string, ids []string) {
		for _, id := range ids {
			if !slices.Contains(h.gpus[resource], id) {
				h.gpus[resource] = append(h.gpus[resource], id)
			}
		}
	}
	known := map[string]bool{}
	for i := range all {
		if a := &all[i]; a.PodUID == pod.UID {
			add(a.Resource, a.GPUs)
			known[a.Container+"/"+a.Resource] = true
		}
	}
	if h.chosen == nil {
		return h
	}
	for i := range h.chosen.Containers {
		if c := &h.chosen.Containers[i]; !known[c.Name+"/"+c.Resource] {
			add(c.Resource, c.GPUs)
		}
	}
	return h
}

func (h *holding) has(gpu string) bool {
	for _, ids := range h.gpus {
		if slices.Contains(ids, gpu) {
			return true
		}
	}
	return false
}

// begun returns when the pod got its GPUs.
func (h *holding) begun() time.Time {
	if h.chosen != nil {
		return h.chosen.Assumed
	}
	return h.pod.CreationTimestamp.Time
}

// troubles returns the faults of a pod's devices, and whether the state of the links between its GPUs is
// known. It is a pure function.
func troubles(h *holding, n *usage.Node, health []v1alpha1.GPUHealth) (out []trouble, links bool) {
	several, links := 0, true
	for _, ids := range h.gpus {
		several += len(ids)
	}
	for _, resource := range slices.Sorted(maps.Keys(h.gpus)) {
		ids, accel, sound := h.gpus[resource], n.Accel(resource), true
		for _, id := range ids {
			t := h.troubleOf(resource, accel, id, health, several > 1)
			if t != nil {
				t.note += fmt.Sprintf(" (node %s, pod %s/%s)", n.Name, h.pod.Namespace, h.pod.Name)
				out = append(out, *t)
				sound = sound && t.reason == eventGPUDegraded
			}
		}
		if accel == nil { // the node has none of the resource now
			links = false
			continue
		}
		t, known := h.linkTrouble(n, accel, ids)
		links = links && known && sound
		if t != nil && sound {
			t.note += fmt.Sprintf(" (node %s, pod %s/%s)", n.Name, h.pod.Namespace, h.pod.Name)
			out = append(out, *t)
		}
	}
	return out, links
}

// troubleOf returns the fault of one GPU, or nil if none is known that concerns the pod. accel is nil if
// the node no longer has the resource.
func (h *holding) troubleOf(resource string, accel *usage.Accel, id string, health []v1alpha1.GPUHealth, several bool) *trouble {
	var since time.Time
	if i := slices.IndexFunc(health, func(e v1alpha1.GPUHealth) bool { return e.ID == id }); i >= 0 && health[i].Since != nil {
		since = health[i].Since.Time
	}
	p := -1
	if accel != nil {
		p = slices.IndexFunc(accel.Graph.GPUs, func(d nvtopo.GPU) bool { return d.UUID == id })
	}
	if p < 0 {
		// A name that was never in a graph is not missing from it.
		if h.chosen == nil || !slices.Contains(h.chosen.GPUs(resource), id) {
			return nil
		}
		return &trouble{reason: eventGPULost, gpu: id, note: fmt.Sprintf("GPU %s is no longer part of its node", id)}
	}
	d := &accel.Graph.GPUs[p]
	stable, _, _ := strings.Cut(cmp.Or(d.Unhealthy, d.Degraded), ":")
	t := &trouble{gpu: id, text: stable, since: since}
	switch {
	case strings.HasPrefix(d.Unhealthy, lostPrefix):
		t.reason, t.note = eventGPULost, fmt.Sprintf("GPU %s is lost: %s", id, d.Unhealthy)
	case d.Unhealthy != "":
		t.reason, t.note = eventGPUUnhealthy, fmt.Sprintf("GPU %s must not be used any more: %s", id, d.Unhealthy)
	case d.MIG:
		t.reason, t.note = eventGPUPartitioned, fmt.Sprintf("GPU %s has been partitioned (MIG) and is no longer given out whole", id)
	case d.Degraded != "" && (several || since.After(h.begun())):
		t.reason, t.note = eventGPUDegraded, fmt.Sprintf("GPU %s is degraded, its links to other GPUs must not be relied on: %s", id, d.Degraded)
	default:
		return nil
	}
	return t
}

// linkTrouble returns a fault if the ring of a pod's GPUs has become worse than in the annotations. known
// is false until kubelet's record and the annotations agree.
func (h *holding) linkTrouble(n *usage.Node, accel *usage.Accel, ids []string) (t *trouble, known bool) {
	if len(ids) < 2 {
		return nil, true
	}
	if h.chosen == nil || len(h.gpus) != 1 {
		return nil, false
	}
	set, missing := accel.Graph.Positions(ids)
	chosen, _ := accel.Graph.Positions(h.chosen.GPUs(accel.Resource))
	promised, err := nvtopo.ParseClass(h.pod.Annotations[allocation.LinkClassKey])
	if len(missing) > 0 || set != chosen || err != nil {
		return nil, false
	}
	class, ring := accel.Tables.RingClass(set), nvtopo.GBps(accel.Tables.Ring(set))
	before, err := strconv.ParseFloat(h.pod.Annotations[allocation.RingBandwidthKey], 64)
	if err != nil {
		before = 0
	}
	// Constants may differ in the last digit between versions of the exporter.
	if class.AtLeast(promised) && ring >= 0.99*before {
		return nil, true
	}
	t = &trouble{reason: eventLinkDegraded, text: class.String()}
	t.note = fmt.Sprintf("the weakest link between GPUs %s is now %s, %.4g GB/s; it was %s, %.4g GB/s when they were chosen",
		strings.Join(ids, ", "), class, ring, promised, before)
	if what := unmet(h.pod, h.chosen, n); what != "" {
		t.note += "; the pod's own demand is not met any more: " + what
	}
	return t, true
}
