// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// differences returns the disagreements between annotation, checkpoint, PodResources and environment
// about a pod's GPUs: for app and sidecar containers all four must be equal; for init containers, whose
// devices kubelet picks itself from those of the pod, its record and the environment must be equal, and
// the set over the pod.
func differences(pod string, containers []gpunode.Observation) []string {
	var out []string
	chosen, recorded := map[string]bool{}, map[string]bool{}
	for _, c := range containers {
		if len(c.Environment) != c.Asked || !slices.Equal(c.Checkpoint, c.Environment) {
			out = append(out, fmt.Sprintf("pod %s, container %s asked for %d: checkpoint %v, environment %v", pod, c.Container, c.Asked, c.Checkpoint, c.Environment))
		}
		if c.Kind != gpunode.Init && (!slices.Equal(c.Annotation, c.Checkpoint) || !slices.Equal(c.Annotation, c.PodResources)) {
			out = append(out, fmt.Sprintf("pod %s, container %s: annotation %v, checkpoint %v, PodResources %v", pod, c.Container, c.Annotation, c.Checkpoint, c.PodResources))
		}
		for _, id := range c.Annotation {
			chosen[id] = true
		}
		for _, id := range c.Checkpoint {
			recorded[id] = true
		}
	}
	if !maps.Equal(chosen, recorded) {
		out = append(out, fmt.Sprintf("pod %s: annotation %v in all, checkpoint %v in all",
			pod, slices.Sorted(maps.Keys(chosen)), slices.Sorted(maps.Keys(recorded))))
	}
	return append(out, shared(pod, containers)...)
}

// shared returns the GPUs that two containers of a pod have at the same time.
func shared(pod string, containers []gpunode.Observation) []string {
	var out []string
	owner := map[string]string{}
	for _, c := range containers {
		if c.Kind == gpunode.Init {
			continue
		}
		for _, id := range c.Environment {
			if other, taken := owner[id]; taken {
				out = append(out, fmt.Sprintf(testkit.ViolationPrefix+"pod %s: containers %s and %s share %s", pod, other, c.Container, id))
			}
			owner[id] = c.Container
		}
	}
	return out
}

// complain reports a pod's fault. A GPU with two owners is a violation, by its prefix.
func complain(tb testing.TB, problem string) {
	tb.Helper()
	if text, ok := strings.CutPrefix(problem, testkit.ViolationPrefix); ok {
		testkit.Violation(tb, "%s", text)
		return
	}
	tb.Error(problem)
}

// held returns the GPUs that a pod's containers see.
func held(containers []gpunode.Observation) []string {
	var out []string
	for _, c := range containers {
		out = append(out, c.Environment...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// judgePod is differences in the form that a churn needs.
func judgePod(pod *v1.Pod, containers []gpunode.Observation) []string {
	return differences(pod.Name, containers)
}
