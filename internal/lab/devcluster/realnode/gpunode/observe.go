// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// Kind is the phase in which a container runs.
type Kind string

// The kinds of containers.
const (
	App     Kind = "app"
	Sidecar Kind = "sidecar" // an init container that goes on beside the app containers
	Init    Kind = "init"    // over before the app containers, which get its GPUs
)

// Observation holds one container's GPUs according to four sources, each sorted; nil where a source has
// no data on the container.
type Observation struct {
	Container string
	Kind      Kind
	Asked     int

	Annotation   []string // the scheduler's choice
	Checkpoint   []string // kubelet's record on disk
	PodResources []string // kubelet's record as monitoring reads it; it leaves out init containers
	Environment  []string // NVIDIA_VISIBLE_DEVICES inside the container, or with CDI its device nodes

	Report *realnode.Report // all that the container saw
}

// Observe reads the four sources for every GPU container of a pod, whose object must be current. It
// returns realnode.ErrNoReport while a container has not started.
func (l *Lab) Observe(ctx context.Context, pod *v1.Pod) ([]Observation, error) {
	out := containers(pod)
	for i := range out {
		r, err := l.Node.Report(pod, out[i].Container)
		if err != nil {
			return nil, err
		}
		out[i].Report = r
		if out[i].Environment, err = l.seen(r); err != nil {
			return nil, fmt.Errorf("container %s of %s: %w", out[i].Container, pod.Name, err)
		}
	}
	devices, err := l.podDevices(ctx, pod)
	if err != nil {
		return nil, err
	}
	records, err := kubelet.ReadCheckpoint(l.Node.Path(realnode.Checkpoint))
	if err != nil {
		return nil, fmt.Errorf("read kubelet's checkpoint: %w", err)
	}
	chosen, err := chosen(pod)
	if err != nil {
		return nil, err
	}
	for i := range out {
		o := &out[i]
		o.Annotation = chosen[o.Container]
		o.PodResources = sorted(devices[o.Container][Resource])
		for _, r := range records {
			if r.PodUID == pod.UID && r.Container == o.Container && r.Resource == Resource {
				o.Checkpoint = sorted(r.IDs)
			}
		}
	}
	return out, nil
}

// seen returns the GPUs that a container sees. NVIDIA's CDI specifications set the variable to "void", so
// that no other program adds devices to theirs; these have the driver's minor numbers.
func (l *Lab) seen(r *realnode.Report) ([]string, error) {
	list := r.Env["NVIDIA_VISIBLE_DEVICES"]
	if list != "void" {
		return split(list), nil
	}
	return l.Owners(r.GPUs)
}

// Owners returns the GPUs, sorted, that have these device nodes. On the fake driver the minor number is
// the GPU's index.
func (l *Lab) Owners(nodes []string) ([]string, error) {
	byMinor := map[int]string{}
	if l.installed == nil {
		for i := range l.Graph.GPUs {
			byMinor[i] = l.Graph.GPUs[i].UUID
		}
	}
	for _, g := range l.installed {
		byMinor[g.Minor] = g.UUID
	}
	var out []string
	for _, node := range nodes {
		minor, err := strconv.Atoi(strings.TrimPrefix(node, "/dev/nvidia"))
		if err != nil || byMinor[minor] == "" {
			return nil, fmt.Errorf("device node %s is of no GPU", node)
		}
		out = append(out, byMinor[minor])
	}
	return sorted(out), nil
}

// kubeletAnswers limits one request to kubelet: a kubelet that never responds is an error that tests can
// name.
const kubeletAnswers = time.Minute

// podDevices returns kubelet's record of one pod. List, as other clients use, would disturb an allocation
// in progress (kubernetes/kubernetes#137534).
func (l *Lab) podDevices(ctx context.Context, pod *v1.Pod) (kubelet.Devices, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeletAnswers)
	defer cancel()
	devices, err := l.podResources.Get(ctx, pod.Namespace, pod.Name)
	switch {
	case errors.Is(err, kubelet.ErrBusy):
		return nil, fmt.Errorf("%w: kubelet is busy", realnode.ErrNoReport)
	case err != nil:
		return nil, fmt.Errorf("ask for the devices of %s: %w", pod.Name, err)
	}
	return devices, nil
}

// chosen returns the annotated GPUs by container.
func chosen(pod *v1.Pod) (map[string][]string, error) {
	text, ok := pod.Annotations[allocation.Key]
	if !ok {
		return map[string][]string{}, nil
	}
	a, err := allocation.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	out := map[string][]string{}
	if !a.Is(pod.UID, pod.Spec.NodeName) {
		return out, nil // no choice for this pod here
	}
	for _, c := range a.Containers {
		if c.Resource == Resource {
			out[c.Name] = sorted(c.GPUs)
		}
	}
	return out, nil
}

// containers returns the pod's GPU containers in the order in which they start.
func containers(pod *v1.Pod) []Observation {
	var out []Observation
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		kind := Init
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			kind = Sidecar
		}
		out = append(out, Observation{Container: c.Name, Kind: kind, Asked: gpus(c)})
	}
	for i := range pod.Spec.Containers {
		out = append(out, Observation{Container: pod.Spec.Containers[i].Name, Kind: App, Asked: gpus(&pod.Spec.Containers[i])})
	}
	return slices.DeleteFunc(out, func(o Observation) bool { return o.Asked == 0 })
}

func gpus(c *v1.Container) int {
	q := c.Resources.Limits[v1.ResourceName(Resource)]
	return int(q.Value())
}

// split reads a comma list.
func split(list string) []string {
	if list == "" {
		return nil
	}
	return sorted(strings.Split(list, ","))
}

func sorted(ids []string) []string {
	if len(ids) == 0 {
		return nil
	}
	return slices.Sorted(slices.Values(ids))
}
