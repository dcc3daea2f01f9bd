// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

// Reasons of the Ready condition.
const (
	ReasonRead         = "Read"
	ReasonReadInPart   = "ReadWithProblems"
	ReasonReadFailed   = "ReadFailed"
	ReasonNoDriver     = "DriverNotFound"
	reasonSimulated    = "Simulated"
	simulatedStatement = "the node is simulated: pods get what the scheduler chose"
)

// maxMessage limits a condition's message, in bytes; the log has the full text.
const maxMessage = 1024

// describe returns the NodeGPUTopology for a graph read on a node, or an error if it cannot be published.
func describe(cfg Config, node nodeView, g *nvtopo.Graph) (*v1alpha1.NodeGPUTopology, error) {
	t := v1alpha1.FromGraph(cfg.NodeName, cfg.Resource, g)
	if err := t.Spec.Fit(); err != nil {
		return nil, fmt.Errorf("the graph of node %q: %w", cfg.NodeName, err)
	}
	t.Spec.NodeUID, t.Spec.BootID = node.uid, node.bootID
	t.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: cfg.NodeName, UID: node.uid}}
	return t, nil
}

// ready returns the Ready condition for a reading.
func ready(problems []Problem, readErr error) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonRead, Message: "all GPUs were read"}
	switch {
	case readErr != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonReadFailed, readErr.Error()
		if nvml.IsNoDriver(readErr) {
			c.Reason = ReasonNoDriver
		}
	case len(problems) > 0:
		lines := make([]string, len(problems))
		for i, p := range problems {
			lines[i] = p.String()
		}
		slices.Sort(lines) // the same problems in another order are not a change
		c.Reason, c.Message = ReasonReadInPart, strings.Join(lines, "; ")
	}
	c.Message = v1alpha1.WithoutControls(c.Message)
	if len(c.Message) > maxMessage {
		c.Message = strings.ToValidUTF8(c.Message[:maxMessage], "") + " …"
	}
	return c
}

// unknowns returns the properties that the graph lacks of healthy GPUs and that pods may request.
func unknowns(g *nvtopo.Graph) (out []Problem) {
	for _, x := range []struct {
		what    string
		unknown func(d *nvtopo.GPU) bool
	}{
		{"NUMA node", func(d *nvtopo.GPU) bool { return d.NUMANode == nvtopo.UnknownNUMA }},
		{"memory", func(d *nvtopo.GPU) bool { return d.Memory == 0 }},
		{"model", func(d *nvtopo.GPU) bool { return d.Model == "" }},
	} {
		var of nvtopo.CPUSet // a list of numbers in short
		for i := range g.GPUs {
			if d := &g.GPUs[i]; d.Unhealthy == "" && x.unknown(d) {
				of = of.Union(nvtopo.NewCPUSet(d.Index))
			}
		}
		if len(of) > 0 {
			out = append(out, Problem{Text: x.what + " of GPU " + of.String() + " is not known"})
		}
	}
	return out
}

// withConditions sets the conditions of t. A condition keeps its transition time on the server unless its
// status has changed.
func withConditions(t *v1alpha1.NodeGPUTopology, observed *v1alpha1.NodeGPUTopology, now metav1.Time, conds ...metav1.Condition) {
	t.Status.Conditions = nil
	for _, c := range conds {
		c.LastTransitionTime = now
		if observed != nil {
			if old := meta.FindStatusCondition(observed.Status.Conditions, c.Type); old != nil && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		t.Status.Conditions = append(t.Status.Conditions, c)
	}
}

// withSince sets the time since when each GPU has its current state. If the server or an earlier report
// has the same state, its time is kept.
func withSince(t *v1alpha1.NodeGPUTopology, now metav1.Time, known ...*v1alpha1.NodeGPUTopology) {
	for i := range t.Status.GPUHealth {
		h := &t.Status.GPUHealth[i]
		if h.Since = nil; h.Healthy && !h.Degraded {
			continue
		}
		h.Since = &now
		for _, k := range known {
			if old := healthOf(k, h.ID); old != nil && old.Since != nil && sameFault(h, old) {
				h.Since = old.Since
				break
			}
		}
	}
}

func healthOf(t *v1alpha1.NodeGPUTopology, id string) *v1alpha1.GPUHealth {
	if t == nil {
		return nil
	}
	i := slices.IndexFunc(t.Status.GPUHealth, func(h v1alpha1.GPUHealth) bool { return h.ID == id })
	if i < 0 {
		return nil
	}
	return &t.Status.GPUHealth[i]
}

// sameFault reports whether two entries describe the same fault. It ignores the part of a reason after
// the colon, which drivers word differently from one reading to the next.
func sameFault(a, b *v1alpha1.GPUHealth) bool {
	x, _, _ := strings.Cut(a.Reason, ":")
	y, _, _ := strings.Cut(b.Reason, ":")
	return a.Healthy == b.Healthy && a.Degraded == b.Degraded && x == y
}

// sameHealth reports whether two entries agree in all but the time.
func sameHealth(a, b *v1alpha1.GPUHealth) bool {
	return a.ID == b.ID && a.Healthy == b.Healthy && a.Degraded == b.Degraded && a.Reason == b.Reason
}

// sameSpec reports whether the server has the wanted spec and owner.
func sameSpec(want, observed *v1alpha1.NodeGPUTopology) bool {
	return observed != nil && apiequality.Semantic.DeepEqual(want.Spec, observed.Spec) && ownedBy(observed, want.Spec.NodeUID)
}

func ownedBy(t *v1alpha1.NodeGPUTopology, uid types.UID) bool {
	return slices.ContainsFunc(t.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == uid })
}

// sameStatus reports whether the server has the exporter's part of the wanted status. Other programs own
// the other parts and conditions.
func sameStatus(want, observed *v1alpha1.NodeGPUTopology) bool {
	if observed == nil || !apiequality.Semantic.DeepEqual(want.Status.Summary, observed.Status.Summary) ||
		!slices.EqualFunc(want.Status.GPUHealth, observed.Status.GPUHealth, func(a, b v1alpha1.GPUHealth) bool { return sameHealth(&a, &b) }) {
		return false
	}
	for _, c := range want.Status.Conditions {
		old := meta.FindStatusCondition(observed.Status.Conditions, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message {
			return false
		}
	}
	return true
}

// current reports whether t describes this node in its current boot.
func current(t *v1alpha1.NodeGPUTopology, node nodeView) bool {
	return t != nil && t.Spec.NodeUID == node.uid && t.Spec.BootID == node.bootID
}
