// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// eventChosen is the reason of the event with the GPUs that a pod got.
const eventChosen = "GPUsChosen"

// chosenPerSecond and chosenBurst bound these events of all pods together. The scheduler sends its events
// one after the other, and drops those that it cannot send in time: these must not push out others. Their
// content is in the pod's annotations as well.
const (
	chosenPerSecond = 10
	chosenBurst     = 100
)

// chosenKey is the key under which the writer of an allocation stores the text of PostBind's event.
const chosenKey fwk.StateKey = "nvtopo.dev/chosen"

// chosen is the text about an allocation, empty if there is none; immutable.
type chosen string

// Clone returns the same text.
func (c chosen) Clone() fwk.StateData { return c }

// chosenNote returns the text with the chosen devices and their quality relative to the best possible.
// annotations are the written form of the allocation.
func chosenNote(a *allocation.Allocation, annotations map[string]string, c *Cycle) chosen {
	indices := annotations[allocation.GPUIndicesKey]
	if indices == "" {
		return "" // CPUs only
	}
	note := "GPUs " + indices
	if !strings.Contains(indices, ",") {
		note = "GPU " + indices
	}
	note += " of node " + a.Node
	if numa := annotations[allocation.NUMANodeKey]; strings.Contains(numa, ",") {
		note += ", NUMA nodes " + numa
	} else if numa != "" {
		note += ", NUMA node " + numa
	}
	d := recordOf(a, c)
	if class := annotations[allocation.LinkClassKey]; class != "" {
		note += fmt.Sprintf("; their ring is of %s, %s GB/s", class, annotations[allocation.RingBandwidthKey])
		if d != nil && d.BestRing > 0 {
			note += fmt.Sprintf(" of the %s that as many have at best when all of the node are free", nvtopo.FormatGBps(d.BestRing))
		}
	}
	switch {
	case d == nil:
	case d.Gang:
		note += "; by the plan of its gang"
	case d.Scored > 1:
		note += fmt.Sprintf("; best of the %d nodes that were compared", d.Scored)
	}
	if d != nil && d.Left != nil {
		note += "; " + d.Left.String()
	}
	return chosen(note)
}

// recordOf returns the cycle's record of the choice; nil if there is none, or it is of another node.
func recordOf(a *allocation.Allocation, c *Cycle) *allocation.Decision {
	if c == nil || c.Decision == nil || c.Decision.Node != a.Node {
		return nil
	}
	return c.Decision
}

// sayChosen writes the event, unless too many were written recently.
func (p *Plugin) sayChosen(state fwk.CycleState, pod *v1.Pod) {
	d, err := state.Read(chosenKey)
	if err != nil {
		return // nothing was chosen
	}
	if note, _ := d.(chosen); note != "" && p.shared.chosen.TryAccept() {
		p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeNormal, eventChosen, "Binding", "%s", note)
	}
}
