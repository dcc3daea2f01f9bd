// SPDX-License-Identifier: Apache-2.0

package gangdemo

import (
	"errors"
	"fmt"
	"maps"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	namespace   = metav1.NamespaceDefault
	gpuResource = v1.ResourceName("nvidia.com/gpu")
)

// gang is a group of pods that start together, and the demo's promise of their places. A gang of one pod
// is a single pod.
type gang struct {
	name   string
	letter rune
	pods   int
	gpus   int // a pod's
	wishes map[string]string
	class  string // its priority; empty: 0

	racks, spines int // the most that it may be in; 0: any number
	apart         int // the fewest racks that it is to be in
}

// member is one pod of the gang.
func (g *gang) member(rank int) *v1.Pod {
	gpus := v1.ResourceList{
		gpuResource: *resource.NewQuantity(int64(g.gpus), resource.DecimalSI), v1.ResourceCPU: *resource.NewQuantity(int64(g.gpus), resource.DecimalSI),
	}
	notes := map[string]string{demo.LetterKey: string(g.letter)}
	if g.pods > 1 {
		notes[gangrequest.GangKey], notes[gangrequest.GangSizeKey] = g.name, strconv.Itoa(g.pods)
		maps.Copy(notes, g.wishes)
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: g.nameOf(rank), Namespace: namespace, Annotations: notes},
		Spec: v1.PodSpec{
			SchedulerName: demo.SchedulerName, RestartPolicy: v1.RestartPolicyNever, PriorityClassName: g.class,
			AutomountServiceAccountToken: new(bool),
			Containers: []v1.Container{{
				Name: "main", Image: "registry.example.com/demo:1",
				Resources: v1.ResourceRequirements{Requests: gpus, Limits: gpus},
			}},
		},
	}
}

// nameOf returns the name of the member of a rank.
func (g *gang) nameOf(rank int) string {
	if g.pods == 1 {
		return g.name
	}
	return g.name + "-" + strconv.Itoa(rank)
}

// names returns the names of all members.
func (g *gang) names() []string {
	out := make([]string, g.pods)
	for rank := range out {
		out[rank] = g.nameOf(rank)
	}
	return out
}

// letterOf is the letter of a bound pod.
func letterOf(pod *v1.Pod) rune {
	for _, r := range pod.Annotations[demo.LetterKey] {
		return r
	}
	return '?'
}

// gpusOf reads the GPUs of a bound pod, as positions in its node's graph.
func gpusOf(pod *v1.Pod, g *nvtopo.Graph) ([]int, error) {
	if g == nil {
		return nil, fmt.Errorf("it is on node %s, which the demo does not have", pod.Spec.NodeName)
	}
	text, ok := pod.Annotations[allocation.Key]
	if !ok {
		return nil, errors.New("it is bound without an allocation")
	}
	a, err := allocation.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading its allocation: %w", err)
	}
	return a.Mask(string(gpuResource), g).Positions(), nil
}

// judge returns the problem with the places of a gang, or "".
func (g *gang) judge(at []place) string {
	racks, spines := map[string]bool{}, map[string]bool{}
	for _, p := range at {
		racks[p.rack], spines[p.spine] = true, true
	}
	switch {
	case len(at) < g.pods:
		return fmt.Sprintf("%d of %d members are bound", len(at), g.pods)
	case g.racks > 0 && len(racks) > g.racks:
		return fmt.Sprintf("in %d racks, promised were %d at most", len(racks), g.racks)
	case g.spines > 0 && len(spines) > g.spines:
		return fmt.Sprintf("on %d spines, promised were %d at most", len(spines), g.spines)
	case len(racks) < g.apart:
		return fmt.Sprintf("in %d racks, promised were %d at least", len(racks), g.apart)
	}
	return ""
}
