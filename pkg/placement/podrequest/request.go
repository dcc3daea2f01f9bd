// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// Affinity is the wanted alignment of a pod's CPUs and memory with the NUMA nodes of its GPUs.
type Affinity uint8

// The affinities. AffinityNone is the zero value.
const (
	AffinityNone      Affinity = iota
	AffinityPreferred          // near them if possible
	AffinityRequired           // on them, or not on this node
)

// ParseAffinity reads a value of NUMAAffinityKey.
func ParseAffinity(s string) (Affinity, error) {
	switch s {
	case "none":
		return AffinityNone, nil
	case "preferred":
		return AffinityPreferred, nil
	case "required":
		return AffinityRequired, nil
	}
	return AffinityNone, fmt.Errorf("unknown NUMA affinity %q, want none, preferred or required", s)
}

// ContainerKind distinguishes containers by when their devices are in use.
type ContainerKind uint8

// The kinds of container.
const (
	AppContainer ContainerKind = iota
	SidecarContainer
	InitContainer
)

// Container is one container's part of the pod's devices.
type Container struct {
	Name     string
	Kind     ContainerKind
	GPUs     []int // in the order of Request.Resources
	Position int   // among all containers, init containers first
}

// MaxResources bounds the number of extended resources of which one profile chooses devices.
const MaxResources = 8

// ResourceRequest is the number of devices of one resource that the whole pod needs at once.
type ResourceRequest struct {
	Name  string
	Count int
}

// Request is the request of one pod to a node; immutable once parsed.
type Request struct {
	UID        types.UID
	Priority   int32
	Resources  []ResourceRequest // only those with a count above 0
	Constraint nvtopo.Constraint
	Affinity   Affinity
	MilliCPU   int64
	Memory     int64 // bytes
	// TrustsOutput: the pod spec refers to output annotations of the scheduler, so the container must get
	// exactly the chosen devices.
	TrustsOutput bool
	// NoTopology: policy none; the pod may run where no graph is known.
	NoTopology bool
	// Hardware are the terms of the pod's preferred node affinity that are about labels of hardware;
	// nil if none is. No node's fit depends on them.
	Hardware *nodeaffinity.PreferredSchedulingTerms
	// SoftTerms: the pod prefers some nodes for other reasons: other pods, other labels, or topology spread.
	SoftTerms bool
	// Immovable: the pod must not be moved to make room for others. It does not change whether a node fits.
	Immovable bool
	// MessageBytes is the size of each GPU's message in the all-reduce by whose time nodes are compared; 0 if
	// not given. No node's fit depends on it.
	MessageBytes int64
	// PromisedModel is the GPU model under PromisedModelKey; empty if there is none. No node's fit depends on
	// it, and members of a gang that differ in it alone request the same GPUs.
	PromisedModel string
	Containers    []Container // those with GPUs
	// Admission is the pod in the form of kubelet's managers, its devices in the order of Resources.
	Admission      *kubeletadmission.Pod
	ContainerNames []string // only of a pod that may get exclusive CPUs
	// EphemeralStorage, in bytes, and Scalars are the pod's requests beside CPU and memory.
	EphemeralStorage int64
	Scalars          map[v1.ResourceName]int64

	models       []string // upper case, blanks single; any may match
	minGPUMemory int64    // bytes
}

// Options are the arguments of a profile that parsing a pod needs.
type Options struct {
	Resources       []string
	DefaultPolicy   nvtopo.Policy
	Supported       []nvtopo.Policy
	DefaultAffinity Affinity
	// HardwareLabels are the labels of nodes that name their hardware.
	HardwareLabels []string
}

// AllPolicies lists every policy, for a profile without restrictions.
func AllPolicies() []nvtopo.Policy {
	return []nvtopo.Policy{nvtopo.PolicyNone, nvtopo.PolicyBestEffort, nvtopo.PolicyRestricted, nvtopo.PolicySingleNUMANode}
}

// Parse reads a pod's request. A value that cannot be read is an error naming the annotation; it never
// falls back to a default.
func Parse(pod *v1.Pod, opt *Options) (*Request, error) {
	r := &Request{UID: pod.UID, Priority: corev1.PodPriority(pod)}
	r.readContainers(pod, opt.Resources)
	r.readAdmission(pod)
	total := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	r.MilliCPU, r.Memory = milliOf(total.Cpu()), amountOf(total.Memory())
	r.readOthers(total)
	if err := r.readAnnotations(pod.Annotations, opt); err != nil {
		return nil, err
	}
	if err := r.refuseParts(pod, opt.Resources); err != nil {
		return nil, err
	}
	r.readSoftTerms(pod, opt.HardwareLabels)
	r.PromisedModel = PromisedModelOf(pod)
	r.TrustsOutput = len(r.Resources) > 0 && allocation.RefersToOutput(&pod.Spec)
	return r, nil
}

// PromisedModelOf returns the pod's value of PromisedModelKey; empty if it is too long.
func PromisedModelOf(pod *v1.Pod) string {
	model := pod.Annotations[PromisedModelKey]
	if tooLong(model) != nil {
		return ""
	}
	return model
}

// ForAdmission reads only the part of a pod on which kubelet's admission depends: its containers and their
// devices. It takes any pod, also one whose annotations cannot be read.
func ForAdmission(pod *v1.Pod, resources []string) *Request {
	r := &Request{}
	r.readContainers(pod, resources)
	r.readAdmission(pod)
	return r
}

// readOthers reads the resources that the scheduler compares with a node beside CPU, memory and devices.
// It adds them up by the framework's rule.
func (r *Request) readOthers(total v1.ResourceList) {
	for name, q := range total {
		switch {
		case name == v1.ResourceEphemeralStorage:
			r.EphemeralStorage += q.Value()
		case name == v1.ResourceCPU, name == v1.ResourceMemory, name == v1.ResourcePods:
		case v1helper.IsExtendedResourceName(name), v1helper.IsHugePageResourceName(name),
			v1helper.IsPrefixedNativeResource(name), v1helper.IsAttachableVolumeResourceName(name):
			if r.Scalars == nil {
				r.Scalars = map[v1.ResourceName]int64{}
			}
			r.Scalars[name] += q.Value()
		}
	}
}

// RankingSignature is equal for two pods exactly when they have the same Signature and nodes are ranked
// alike for them, as far as other plugins do not decide: affinity, which Hardware is part of, is in the
// signature of its own plugin.
func (r *Request) RankingSignature() string {
	if r.MessageBytes == 0 {
		return r.Signature()
	}
	return fmt.Sprintf("%s message %d", r.Signature(), r.MessageBytes)
}

// Signature is equal for two pods exactly when each node fits both or neither; nodes may be ranked
// differently for them. Most pods request a number of GPUs and nothing else of nvtopo's; theirs is cheap.
func (r *Request) Signature() string {
	b := make([]byte, 0, 128)
	for _, res := range r.Resources {
		b = append(append(b, res.Name...), '=')
		b = append(strconv.AppendInt(b, int64(res.Count), 10), ' ')
	}
	b = append(strconv.AppendInt(b, int64(r.Priority), 10), ' ')
	b = append(strconv.AppendInt(b, r.MilliCPU, 10), ' ')
	b = strconv.AppendInt(b, r.Memory, 10)
	for _, c := range r.Containers {
		b = append(append(b, ' '), c.Name...)
		b = append(b, ':', '0'+byte(c.Kind))
		for _, n := range c.GPUs {
			b = strconv.AppendInt(append(b, ','), int64(n), 10)
		}
	}
	if r.Admission.Pinned() {
		for i := range r.Admission.Containers {
			c := &r.Admission.Containers[i]
			b = strconv.AppendInt(append(b, ';', '0'+byte(c.Kind)), int64(c.CPUs), 10)
			b = strconv.AppendInt(append(b, ','), c.Memory, 10)
		}
	}
	b = append(b, ' ', '0'+byte(r.Affinity), '0'+byte(r.Constraint.Policy))
	b = strconv.AppendBool(strconv.AppendBool(b, r.TrustsOutput), r.NoTopology)
	if plain := (nvtopo.Constraint{Policy: r.Constraint.Policy}); r.Constraint != plain || r.Picky() {
		b = fmt.Appendf(b, " %+v %q %d", r.Constraint, r.models, r.minGPUMemory)
	}
	return string(b)
}

// GPUKey is equal for two pods exactly when they request the same GPUs: as many of a resource, with the
// same demands on links, models and memory. It is empty for a pod without GPUs.
func (r *Request) GPUKey() string {
	if !r.HasGPUs() {
		return ""
	}
	return fmt.Sprintf("%v %+v %q %d", r.Resources, r.Constraint, r.models, r.minGPUMemory)
}

// Single reports whether the pod has one device in all, so that a degraded one suffices. Containers that
// use it one after the other do not matter.
func (r *Request) Single() bool { return len(r.Resources) == 1 && r.Resources[0].Count == 1 }

// HasGPUs reports whether the pod requests any accelerator.
func (r *Request) HasGPUs() bool { return len(r.Resources) > 0 }

// HasNUMAPolicy reports whether a pod without GPUs requests NUMA alignment.
func (r *Request) HasNUMAPolicy() bool {
	return r.Affinity != AffinityNone || r.Constraint.Policy == nvtopo.PolicyRestricted ||
		r.Constraint.Policy == nvtopo.PolicySingleNUMANode
}

// Placed reports whether the scheduler chooses GPUs or NUMA nodes for the pod.
func (r *Request) Placed() bool { return r.HasGPUs() || r.HasNUMAPolicy() }

// LinkSensitive reports whether the pod needs exactly known GPUs: it is refused on a node with untracked
// devices.
func (r *Request) LinkSensitive() bool {
	c := r.Constraint
	return c.Policy == nvtopo.PolicyRestricted || c.Policy == nvtopo.PolicySingleNUMANode ||
		c.MinLink != (nvtopo.Class{}) || c.MinBandwidth > 0
}

// NeedsGraph reports whether the pod has a demand that only a graph can show to be met.
func (r *Request) NeedsGraph() bool {
	return r.LinkSensitive() || r.Affinity == AffinityRequired || r.TrustsOutput || r.Picky()
}

// NeedsNUMAFit reports whether CPU and memory must come from the NUMA nodes of the set. The policy is
// about GPUs: it applies to CPUs and memory only for pods without GPUs.
func (r *Request) NeedsNUMAFit() bool {
	return (r.Affinity == AffinityRequired || r.Constraint.Policy == nvtopo.PolicySingleNUMANode && !r.HasGPUs()) &&
		(r.MilliCPU > 0 || r.Memory > 0)
}

func (r *Request) readContainers(pod *v1.Pod, resources []string) {
	all := make([]Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	add := func(c *v1.Container, kind ContainerKind) {
		cr := Container{Name: c.Name, Kind: kind, GPUs: make([]int, len(resources)), Position: len(all)}
		for i, res := range resources {
			if q, ok := c.Resources.Requests[v1.ResourceName(res)]; ok {
				cr.GPUs[i] = countOf(&q)
			} else if q, ok := c.Resources.Limits[v1.ResourceName(res)]; ok {
				cr.GPUs[i] = countOf(&q)
			}
		}
		all = append(all, cr)
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		add(c, initKind(c))
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i], AppContainer)
	}
	var used []int
	for i, res := range resources {
		if n := effective(all, i); n > 0 {
			r.Resources = append(r.Resources, ResourceRequest{Name: res, Count: n})
			used = append(used, i)
		}
	}
	for _, c := range all {
		gpus := make([]int, len(used))
		any := false
		for j, i := range used {
			gpus[j] = c.GPUs[i]
			any = any || gpus[j] > 0
		}
		if any {
			r.Containers = append(r.Containers, Container{Name: c.Name, Kind: c.Kind, GPUs: gpus, Position: c.Position})
		}
	}
}

// effective is the framework's rule: the sum of sidecars and app containers, or of an init container and
// the sidecars started before it, whichever is more.
func effective(all []Container, res int) int {
	running, most := 0, 0
	for _, c := range all {
		switch c.Kind {
		case SidecarContainer, AppContainer:
			running += c.GPUs[res]
		case InitContainer:
			most = max(most, running+c.GPUs[res])
		}
	}
	return max(most, running)
}

// normalModel makes product names comparable: GPU feature discovery writes dashes where NVML has blanks.
func normalModel(s string) string {
	s = strings.ToUpper(strings.NewReplacer("-", " ", "_", " ").Replace(s))
	return strings.Join(strings.Fields(s), " ")
}

// Picky reports whether the pod requests certain models or memory.
func (r *Request) Picky() bool { return len(r.models) > 0 || r.minGPUMemory > 0 }

// Suitable returns the GPUs whose model and memory the pod accepts. An unknown model or memory is not
// accepted.
func (r *Request) Suitable(g *nvtopo.Graph) nvtopo.Mask {
	full := nvtopo.FullMask(g.Len())
	if len(r.models) == 0 && r.minGPUMemory == 0 {
		return full
	}
	var m nvtopo.Mask
	for i := range g.GPUs {
		if d := &g.GPUs[i]; d.Memory >= r.minGPUMemory && r.acceptsModel(d.Model) {
			m |= 1 << i
		}
	}
	return m
}

// Undecided returns the GPUs that the pod might accept if their memory were known, and those that it might
// accept if their model were.
func (r *Request) Undecided(g *nvtopo.Graph) (memory, model nvtopo.Mask) {
	for i := range g.GPUs {
		d := &g.GPUs[i]
		noMemory, noModel := r.minGPUMemory > 0 && d.Memory == 0, len(r.models) > 0 && d.Model == ""
		if !noMemory && d.Memory < r.minGPUMemory || !noModel && !r.acceptsModel(d.Model) {
			continue
		}
		if noMemory {
			memory |= 1 << i
		}
		if noModel {
			model |= 1 << i
		}
	}
	return memory, model
}

func (r *Request) acceptsModel(model string) bool {
	return len(r.models) == 0 || slices.ContainsFunc(r.models, func(want string) bool {
		return strings.Contains(" "+normalModel(model)+" ", " "+want+" ")
	})
}

// initKind distinguishes a sidecar from a container that ends before the next begins.
func initKind(c *v1.Container) ContainerKind {
	if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
		return SidecarContainer
	}
	return InitContainer
}

// Unmet names the pod's own demand that a set of GPUs does not meet: the links, the NUMA policy, one
// model, or models and memory. It is empty if all are met.
func (r *Request) Unmet(t *nvtopo.Tables, set nvtopo.Mask) string {
	if set&^r.Suitable(t.Graph()) != 0 {
		return "gpu-model or min-gpu-memory"
	}
	if short := t.Shortfall(set, set, set.Len(), r.Constraint); short != nvtopo.ShortNone {
		return short.String()
	}
	return ""
}
