// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/contract"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// moment matches a time in an annotation.
var moment = regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// TestContract compares all annotations, labels and conditions of pods that are created one after another
// on machines of their own, in both ways of writing, and the reason of a refusal, with the committed
// text. It includes their GPUs and CPUs, but no UIDs and times.
func TestContract(t *testing.T) {
	e := newTestEnv(t, devcluster.Config{})
	e.install(t)
	e.startScheduler(t, schedulingProfiles()...)
	var b strings.Builder
	for _, profile := range bothWrites {
		for _, machine := range []string{"dgx1-v100", "hgx-h200", "l40s-8"} {
			node := "contract-" + strings.ToLower(profile) + "-" + machine
			e.node(t, node, machine)
			var names []string
			for i, pod := range []*v1.Pod{
				gpuPod("one", agentProfile, 1).Obj(), // waits until the scheduler knows of the agent
				gpuPod("pair", profile, 2).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Annotation(podrequest.NUMAAffinityKey, "required").Obj(),
				schedtest.Pod("two-containers").Scheduler(profile).Containers(container("left", 1), container("right", 2)).Obj(),
				gpuPod("too-many", profile, 8).Annotation(podrequest.MinBandwidthKey, "20").Obj(),
			} {
				shown := pod.Name
				pod.Name = fmt.Sprintf("%s-%d", node, i)
				names = append(names, pod.Name)
				pod.Spec.NodeSelector = host(node)
				e.create(t, pod)
				if shown == "too-many" {
					e.refused(t, pod.Name)
					pod = e.get(t, pod.Name)
				} else {
					pod = e.bound(t, pod.Name)
				}
				fmt.Fprintf(&b, "# %s on %s, written at %s\n", shown, machine, strings.TrimPrefix(profile, "with-"))
				for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
					fmt.Fprintf(&b, "annotation %s: %s\n", key, strings.ReplaceAll(pod.Annotations[key], string(pod.UID), "UID"))
				}
				for _, key := range slices.Sorted(maps.Keys(pod.Labels)) {
					fmt.Fprintf(&b, "label %s: %s\n", key, pod.Labels[key])
				}
				for i := range pod.Status.Conditions {
					if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse || strings.Contains(string(c.Type), "/") {
						text := fmt.Sprintf("condition %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
						fmt.Fprintln(&b, text)
					}
				}
			}
			e.remove(t, names...)
		}
	}
	contract.Compare(t, "annotations.txt", moment.ReplaceAllString(b.String(), "TIME"))
}
