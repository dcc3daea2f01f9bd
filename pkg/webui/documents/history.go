// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// The sources of entries of a history.
const (
	FromEvent     = "event"
	FromCondition = "condition"
	FromDecision  = "decision"
	FromRecord    = "record"
	FromPod       = "pod"
)

// History is the document of a pod's history.
type History struct {
	Pod      string   `json:"pod"` // namespace/name
	Entries  []Entry  `json:"entries"`
	Problems []string `json:"problems"` // failed reads
}

// Entry is one event of a history. One without a time of its own has that of its source.
type Entry struct {
	At     time.Time `json:"at"`
	Source string    `json:"source"`
	Reason string    `json:"reason"` // in one word
	Text   string    `json:"text"`
	Count  int       `json:"count,omitempty"` // of a series of events
	Data   any       `json:"data,omitempty"`
}

// HistoryOf returns a pod's history, the oldest entry first. events are the events about it, topology is
// its node's, nil if it has none.
func HistoryOf(p *v1.Pod, events []v1.Event, topology *v1alpha1.NodeGPUTopology) *History {
	h := &History{Pod: p.Namespace + "/" + p.Name, Entries: []Entry{}, Problems: []string{}}
	add := func(e Entry) {
		e.At = e.At.UTC()
		h.Entries = append(h.Entries, e)
	}
	add(Entry{At: p.CreationTimestamp.Time, Source: FromPod, Reason: "Created", Text: "the pod was made"})
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		text := cmp.Or(c.Message, c.Reason, "the condition is "+string(c.Status))
		add(Entry{At: c.LastTransitionTime.Time, Source: FromCondition, Reason: string(c.Type) + "=" + string(c.Status), Text: text})
	}
	h.addChoice(p, add)
	h.addRecord(p, topology, add)
	for i := range events {
		e := &events[i]
		if e.InvolvedObject.UID != p.UID && e.InvolvedObject.UID != "" {
			continue // of an earlier pod of the name
		}
		add(Entry{At: timeOf(e), Source: FromEvent, Reason: e.Reason, Text: e.Message, Count: int(max(e.Count, seriesOf(e)))})
	}
	if last := endedAt(p); p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		add(Entry{At: last, Source: FromPod, Reason: string(p.Status.Phase), Text: cmp.Or(p.Status.Message, "the pod has ended")})
	}
	if p.DeletionTimestamp != nil {
		add(Entry{At: p.DeletionTimestamp.Time, Source: FromPod, Reason: "Deleted", Text: "the pod is to be gone by then"})
	}
	slices.SortStableFunc(h.Entries, func(a, b Entry) int {
		return cmp.Or(a.At.Truncate(time.Second).Compare(b.At.Truncate(time.Second)), cmp.Compare(order[a.Source], order[b.Source]), a.At.Compare(b.At))
	})
	return h
}

// order is the order of entries within a second: most times have no finer resolution.
var order = map[string]int{FromPod: 0, FromDecision: 1, FromCondition: 2, FromEvent: 3, FromRecord: 4}

// addChoice adds the chosen GPUs and the reason for the choice.
func (h *History) addChoice(p *v1.Pod, add func(Entry)) {
	if p.Annotations[allocation.Key] == "" {
		return
	}
	a, err := allocation.Of(p, p.Spec.NodeName)
	if err != nil {
		h.Problems = append(h.Problems, err.Error())
		return
	}
	text := "on node " + a.Node
	if gpus := p.Annotations[allocation.GPUIndicesKey]; gpus != "" {
		text += ", GPUs " + gpus
	}
	if class := p.Annotations[allocation.LinkClassKey]; class != "" {
		text += ", " + class
	}
	add(Entry{At: a.Assumed, Source: FromDecision, Reason: "GPUsChosen", Text: text, Data: decisionOf(h, p, a)})
}

func decisionOf(h *History, p *v1.Pod, a *allocation.Allocation) any {
	text, ok := p.Annotations[allocation.DecisionKey]
	if !ok {
		return nil
	}
	d, err := allocation.ParseDecision(text)
	if err != nil {
		h.Problems = append(h.Problems, err.Error())
		return nil
	}
	if !d.Of(a) {
		return nil
	}
	return d
}

// addRecord adds the devices that kubelet gave to the containers. The record has no time: it was made
// when the pod was started.
func (h *History) addRecord(p *v1.Pod, t *v1alpha1.NodeGPUTopology, add func(Entry)) {
	if t == nil {
		return
	}
	indices := map[string]string{}
	for i := range t.Spec.GPUs {
		indices[t.Spec.GPUs[i].ID] = strconv.Itoa(int(t.Spec.GPUs[i].Index))
	}
	at := p.CreationTimestamp.Time
	if p.Status.StartTime != nil {
		at = p.Status.StartTime.Time
	}
	for _, a := range t.Status.Allocations {
		if a.PodUID != p.UID {
			continue
		}
		gpus := make([]string, len(a.GPUs))
		for i, id := range a.GPUs {
			gpus[i] = cmp.Or(indices[id], id)
		}
		add(Entry{At: at, Source: FromRecord, Reason: "Recorded", Text: "kubelet gave container " + a.Container + " the GPUs " + strings.Join(gpus, ","), Data: a})
	}
}

func timeOf(e *v1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

func seriesOf(e *v1.Event) int32 {
	if e.Series == nil {
		return 0
	}
	return e.Series.Count
}
