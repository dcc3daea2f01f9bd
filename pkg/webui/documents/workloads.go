// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// The states of a workload.
const (
	Pending = "pending" // it has no node
	Running = "running" // it has one, whether its containers have started or not
	Ended   = "ended"   // it has succeeded
	Failing = "failing" // it has failed, or its containers cannot start or do not keep running
)

// States lists the states of a workload.
func States() []string { return []string{Pending, Running, Failing, Ended} }

// Unknown is the quality of a pod whose GPUs are not known, or that has no ring.
const Unknown = -1

// maxText bounds the sentences in lists, in bytes; the whole text is in an explanation.
const maxText = 300

// Workloads is the document of all pods that request GPUs.
type Workloads struct {
	Version int64          `json:"version"`
	Moment  time.Time      `json:"moment"`
	Counts  map[string]int `json:"counts"` // by state
	Items   []Workload     `json:"items"`  // by namespace and name
}

// Workload is the summary of one pod.
type Workload struct {
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
	State      string    `json:"state"`
	GPUs       int       `json:"gpus"` // requested
	Node       string    `json:"node"`
	GPUIndices []int     `json:"gpuIndices"` // empty if they are not known
	Gang       string    `json:"gang"`       // namespace/name
	Tenant     string    `json:"tenant"`
	Queue      string    `json:"queue"` // LocalQueue
	// LinkClass and BandwidthGBps describe the weakest link of the ring of its GPUs, BestGBps is the
	// bandwidth of as many GPUs on the empty machine, and Quality their quotient, or Unknown.
	LinkClass     string    `json:"linkClass"`
	BandwidthGBps float64   `json:"bandwidthGBps"`
	BestGBps      float64   `json:"bestGBps"`
	Quality       float64   `json:"quality"`
	Since         time.Time `json:"since"` // time of its last change of state, as far as that is known
	Reason        string    `json:"reason"`
}

// FullName returns namespace/name.
func (w *Workload) FullName() string { return w.Namespace + "/" + w.Name }

// WorkloadsOf lists the pods that request GPUs, with the tenant of their namespace and the queue of their
// Workload.
func WorkloadsOf(v *clusterview.View, o *clusterobjects.Objects) []Workload {
	placed := map[types.UID]*clusterview.Pod{}
	for _, n := range v.Nodes {
		for i := range n.Pods {
			placed[n.Pods[i].UID] = &n.Pods[i]
		}
	}
	tenants := map[string]string{}
	for i := range o.Namespaces {
		tenants[o.Namespaces[i].Name] = o.Namespaces[i].Labels[poolv1alpha1.LabelTenant]
	}
	queues := map[string]string{}
	for i := range o.Workloads {
		queues[o.Workloads[i].Namespace+"/"+o.Workloads[i].Name] = o.Workloads[i].Spec.QueueName
	}
	out, gangs := []Workload{}, reasons{objects: o}
	for i := range o.Pods {
		p := &o.Pods[i]
		asked := askedOf(p, v.Resource)
		if asked == 0 {
			continue
		}
		w := workloadOf(p, asked, placed[p.UID])
		if w.State == Pending && w.Reason != "" {
			w.Reason = clip(gangs.now(p, w.Reason))
		}
		w.Tenant = tenants[p.Namespace]
		w.Queue = cmp.Or(kueue.QueueOf(p), queues[p.Namespace+"/"+cmp.Or(p.Annotations[kueue.AnnotationWorkload], p.Labels[kueue.LabelPodGroup])])
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// reasons returns the reasons of waiting pods, and caches the gangs that were read for them.
type reasons struct {
	objects *clusterobjects.Objects
	parts   map[gangrequest.Key]*gathered
	gangs   map[gangrequest.Key]*gangrequest.Gang
}

// now returns the scheduler's message on a pod, updated for the present members of its gang.
func (r *reasons) now(p *v1.Pod, said string) string {
	key, member := gangrequest.KeyOf(p)
	if !member {
		return said
	}
	if r.gangs == nil {
		r.parts, r.gangs = map[gangrequest.Key]*gathered{}, map[gangrequest.Key]*gangrequest.Gang{}
		for _, g := range gather(r.objects) {
			r.parts[g.key] = g
		}
	}
	if r.gangs[key] == nil {
		r.gangs[key] = gangrequest.Read(key, r.parts[key].group, r.parts[key].pods)
	}
	return r.gangs[key].Said(p, said)
}

// CountsOf counts workloads by state, including states without workloads.
func CountsOf(all []Workload) map[string]int {
	out := map[string]int{}
	for _, state := range States() {
		out[state] = 0
	}
	for i := range all {
		out[all[i].State]++
	}
	return out
}

// askedOf returns the number of devices of a resource that a pod requests.
func askedOf(p *v1.Pod, resource string) int {
	name := v1.ResourceName(resource)
	has := func(c v1.Container) bool { _, ok := c.Resources.Requests[name]; return ok }
	if !slices.ContainsFunc(p.Spec.Containers, has) && !slices.ContainsFunc(p.Spec.InitContainers, has) {
		return 0 // most pods of a cluster: the sum below costs more
	}
	live := usage.NewLivePod(p)
	return podrequest.BoundedCount(live.Amounts().GetScalarResources()[name])
}

func workloadOf(p *v1.Pod, asked int, placed *clusterview.Pod) Workload {
	w := Workload{Namespace: p.Namespace, Name: p.Name, UID: p.UID, GPUs: asked, Node: p.Spec.NodeName, GPUIndices: []int{}, Gang: gangOf(p), Quality: Unknown}
	w.State, w.Since, w.Reason = stateOf(p)
	w.Since, w.Reason = w.Since.UTC(), clip(w.Reason)
	if placed == nil {
		return w
	}
	w.GPUIndices = append(w.GPUIndices, placed.GPUs...)
	if r := placed.Ring; r != nil {
		w.LinkClass, w.BandwidthGBps, w.BestGBps = r.Class, r.BandwidthGBps, r.BestBandwidthGBps
		if r.BestBandwidthGBps > 0 {
			w.Quality = r.BandwidthGBps / r.BestBandwidthGBps
		}
	}
	return w
}

// gangOf returns namespace/name of a pod's gang.
func gangOf(p *v1.Pod) string {
	if key, ok := gangrequest.KeyOf(p); ok {
		return key.Namespace + "/" + key.Name
	}
	return ""
}

// stateOf returns the state of a pod, its beginning, and its reason.
func stateOf(p *v1.Pod) (state string, since time.Time, reason string) {
	scheduled := conditionOf(p, v1.PodScheduled)
	switch {
	case p.Status.Phase == v1.PodSucceeded:
		return Ended, endedAt(p), p.Status.Message
	case p.Status.Phase == v1.PodFailed:
		return Failing, endedAt(p), cmp.Or(p.Status.Message, p.Status.Reason, "the pod has failed")
	case p.Spec.NodeName == "":
		if scheduled != nil {
			reason = scheduled.Message
		}
		return Pending, p.CreationTimestamp.Time, reason
	}
	since = p.CreationTimestamp.Time
	if scheduled != nil {
		since = scheduled.LastTransitionTime.Time
	}
	if why := faultOf(p); why != "" {
		return Failing, since, why
	}
	return Running, since, ""
}

func conditionOf(p *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// endedAt returns the time at which the last container ended.
func endedAt(p *v1.Pod) time.Time {
	last := p.CreationTimestamp.Time
	for i := range p.Status.ContainerStatuses {
		if t := p.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	return last
}

// ordinary are the waiting reasons of a container that starts normally.
var ordinary = []string{"", "ContainerCreating", "PodInitializing"}

// faultOf returns why a container of a pod cannot start, or does not keep running; empty if all do.
func faultOf(p *v1.Pod) string {
	for _, all := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range all {
			if w := all[i].State.Waiting; w != nil && !slices.Contains(ordinary, w.Reason) {
				text := "container " + all[i].Name + ": " + w.Reason
				if w.Message != "" {
					text += ": " + w.Message
				}
				return text
			}
		}
	}
	return ""
}

// clip shortens a long text at the boundary of a character.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	cut := maxText
	for cut > 0 && s[cut]&0xc0 == 0x80 { // in the middle of a character
		cut--
	}
	return s[:cut] + "…"
}
