// SPDX-License-Identifier: Apache-2.0

package refusals

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const (
	// Window is how long a refusal is used.
	Window = 5 * time.Minute
	// Enough is the number of refusals within Window that marks a node.
	Enough = 3
	// NodesOfNamespace is the number of nodes on which the refusals of one namespace are used at a time:
	// those with the most.
	NodesOfNamespace = 4
)

// Refusal is a pod that a node's kubelet refused to admit.
type Refusal struct {
	Pod                     types.UID
	Namespace, Node, Reason string
	At                      time.Time
}

// Counts reports whether the refusal is within Window.
func (r *Refusal) Counts(now time.Time) bool { return now.Before(r.At.Add(Window)) }

// Mark is a node whose kubelet refuses pods.
type Mark struct {
	Node   string
	Pods   int       // refused within Window
	Reason string    // of the last refusal
	Until  time.Time // when fewer than Enough are left, if no more come
}

// String returns the refusals of the node's kubelet as a sentence.
func (m *Mark) String() string {
	return "kubelet refused " + strconv.Itoa(m.Pods) + " pods with GPUs within 5 minutes, the last with " + m.Reason + ": other nodes are preferred"
}

// Marks are the marked nodes by name.
type Marks map[string]Mark

// Has reports whether a node is marked.
func (m Marks) Has(node string, now time.Time) bool {
	mark, ok := m[node]
	return ok && now.Before(mark.Until)
}

// Of returns the marks that result from refusals, each of another pod.
func Of(refused []Refusal, now time.Time) Marks {
	byNamespace := map[string]map[string][]Refusal{}
	for _, r := range refused {
		if r.At.After(now) {
			r.At = now
		}
		if !r.Counts(now) {
			continue
		}
		if byNamespace[r.Namespace] == nil {
			byNamespace[r.Namespace] = map[string][]Refusal{}
		}
		byNamespace[r.Namespace][r.Node] = append(byNamespace[r.Namespace][r.Node], r)
	}
	byNode := map[string][]Refusal{}
	for _, nodes := range byNamespace {
		names := slices.SortedFunc(maps.Keys(nodes), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(nodes[b]), len(nodes[a])), strings.Compare(a, b))
		})
		for _, name := range names[:min(len(names), NodesOfNamespace)] {
			byNode[name] = append(byNode[name], nodes[name]...)
		}
	}
	out := Marks{}
	for node, all := range byNode {
		if len(all) < Enough {
			continue
		}
		slices.SortFunc(all, func(a, b Refusal) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Pod, b.Pod)) })
		out[node] = Mark{Node: node, Pods: len(all), Reason: all[0].Reason, Until: all[Enough-1].At.Add(Window)}
	}
	return out
}

// ReasonOf returns why kubelet refused to admit a pod; empty if it did not, or if the reason may lie in
// the pod. Only kubelet, and users who may write pod status, write these reasons: a failure of the pod's
// own containers is no refusal.
func ReasonOf(p *v1.Pod) string {
	reason := p.Status.Reason
	if p.Status.Phase != v1.PodFailed || p.Spec.NodeName == "" {
		return ""
	}
	// CPU, memory and the number of pods are not about devices, and have no domain in their names. A node may
	// write any text of any length.
	resource, ok := strings.CutPrefix(reason, "OutOf")
	if ok && strings.Contains(resource, "/") && len(validation.IsQualifiedName(resource)) == 0 || reason == "UnexpectedAdmissionError" {
		return reason
	}
	return ""
}

// Seen returns the refusals among a cluster's pods: of those whose GPUs were chosen for the node.
func Seen(pods []v1.Pod) (out []Refusal) {
	for i := range pods {
		p := &pods[i]
		reason := ReasonOf(p)
		if reason == "" {
			continue
		}
		if a, err := allocation.Of(p, p.Spec.NodeName); err != nil || a == nil || len(a.Containers) == 0 {
			continue
		}
		out = append(out, Refusal{Pod: p.UID, Namespace: p.Namespace, Node: p.Spec.NodeName, Reason: reason, At: writtenAt(p)})
	}
	return out
}

// Dates returns the part of a pod's managed fields that Seen reads: when its status was written. nil if
// the pod was not refused.
func Dates(p *v1.Pod) (out []metav1.ManagedFieldsEntry) {
	if ReasonOf(p) == "" {
		return nil
	}
	for i := range p.ManagedFields {
		if f := &p.ManagedFields[i]; f.Subresource == statusWrite && f.Time != nil {
			out = append(out, metav1.ManagedFieldsEntry{Subresource: f.Subresource, Time: f.Time})
		}
	}
	return out
}

// statusWrite is the subresource of managed fields for a write to the status.
const statusWrite = "status"

// writtenAt returns when the pod's status was last written, by the API server's clock, since nodes have
// others; the pod's creation time if that is not known.
func writtenAt(p *v1.Pod) time.Time {
	at := p.CreationTimestamp.Time
	for i := range p.ManagedFields {
		if f := &p.ManagedFields[i]; f.Subresource == statusWrite && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}
