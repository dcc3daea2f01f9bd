// SPDX-License-Identifier: Apache-2.0

package gangdemo

import (
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
)

// free marks a GPU without an owner.
const free = '.'

// owners are the letters of the GPUs of each node, by node and index.
type owners map[string][]rune

// ownersOf returns the owner of each GPU from the bound pods. It fails if two pods have the same GPU.
func ownersOf(pods []v1.Pod, graphs map[string]*nvtopo.Graph, letter func(*v1.Pod) rune) (owners, error) {
	out := owners{}
	for node, g := range graphs {
		out[node] = slices.Repeat([]rune{free}, g.Len())
	}
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName == "" || pod.Status.Phase == v1.PodSucceeded {
			continue
		}
		gpus, err := gpusOf(pod, graphs[pod.Spec.NodeName])
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		for _, at := range gpus {
			if has := out[pod.Spec.NodeName][at]; has != free {
				return nil, fmt.Errorf("GPU %d of node %s is given to pod %s, and to a pod of %q", at, pod.Spec.NodeName, pod.Name, has)
			}
			out[pod.Spec.NodeName][at] = letter(pod)
		}
	}
	return out, nil
}

// draw writes the fabric: a line for each rack, a letter for each GPU.
func draw(w io.Writer, nodes []devcluster.NodeSpec, gpus owners) error {
	var b strings.Builder
	spine, rack := "", ""
	for i := range nodes {
		n := &nodes[i]
		if s := n.Labels[clustertopology.SwitchLabel]; s != spine {
			if spine != "" {
				b.WriteString("\n")
			}
			spine = s
			b.WriteString("  " + s)
		}
		if r := n.Labels[clustertopology.RackLabel]; r != rack {
			rack = r
			b.WriteString("\n    " + r + " ")
		}
		b.WriteString(" " + string(gpus[n.Name]))
	}
	b.WriteString("\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("drawing the fabric: %w", err)
	}
	return nil
}
