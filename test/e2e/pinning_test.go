// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// pinned waits until the node's condition Pinned has a status and returns it.
func (e *testEnv) pinned(t *testing.T, want metav1.ConditionStatus) *metav1.Condition {
	t.Helper()
	var found *metav1.Condition
	testkit.Eventually(t, patience, "the condition Pinned is "+string(want), func(ctx context.Context) (bool, string) {
		topology, err := e.Topology(ctx)
		if err != nil {
			return false, err.Error()
		}
		found = meta.FindStatusCondition(topology.Status.Conditions, v1alpha1.ConditionPinned)
		// KubeletUnknown is the agent's reason until it has read kubelet's settings.
		return found != nil && found.Status == want && found.Reason != "KubeletUnknown", fmt.Sprintf("%+v", topology.Status.Conditions)
	})
	return found
}

// cpusOf returns the CPUs of the NUMA nodes of GPUs, in the kernel's list format.
func (e *testEnv) cpusOf(gpus []string) string {
	var nodes []string
	for _, g := range e.Graph.GPUs {
		if slices.Contains(gpus, g.UUID) {
			nodes = append(nodes, gpunode.CPUs(g.NUMANode))
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if len(nodes) == 2 {
		return "0-1"
	}
	return strings.Join(nodes, ",")
}

// TestPinning checks that a GPU container runs on the CPUs of its GPUs' NUMA nodes, unless kubelet
// manages CPUs itself.
func TestPinning(t *testing.T) {
	t.Run("policy none: on the GPUs' CPUs", func(t *testing.T) {
		l := startBeside(t, gpunode.Config{Agent: true, NRI: true, AgentArgs: []string{"--nri=pin"}})
		l.pinned(t, metav1.ConditionTrue)
		seen := map[string]int{}
		// Five single ones do not fit on one NUMA node of four; the last two GPUs may be of one node or both.
		for i, gpus := range []int{1, 1, 1, 1, 1, 2} {
			name := fmt.Sprintf("pod-%d", i)
			l.create(t, gpunode.Pod(name, gpus))
			pod := l.running(t, name)
			for _, o := range l.observe(t, pod) {
				want := l.cpusOf(o.Environment)
				if o.Report.CPUs != want {
					t.Errorf("%s with %v runs on CPUs %s, want %s", name, o.Environment, o.Report.CPUs, want)
				}
				seen[o.Report.CPUs]++
				l.confined(t, pod, want)
				l.cpusetIs(t, name, want)
			}
		}
		if seen[gpunode.CPUs(0)] == 0 || seen[gpunode.CPUs(1)] == 0 {
			t.Errorf("CPUs seen: %v; want pods on either NUMA node", seen)
		}
		l.clear(t)

		// Despite a wrong annotation, the container runs beside its GPU, and the annotation is corrected.
		pod := l.create(t, gpunode.Pod("misplaced", 1, scheduledBy(nobody)))
		wrong := l.allocation(t, pod, 0)
		wrong[allocation.Key] = strings.Replace(wrong[allocation.Key], `"containers"`, `"cpuset":"1","containers"`, 1)
		wrong[allocation.CPUSetKey] = "1"
		l.bind(t, pod, wrong)
		pod = l.running(t, pod.Name)
		for _, o := range l.observe(t, pod) {
			if !slices.Equal(o.Environment, l.uuids(0)) || o.Report.CPUs != gpunode.CPUs(0) {
				t.Errorf("it got %v and runs on CPUs %s, want %v on %s", o.Environment, o.Report.CPUs, l.uuids(0), gpunode.CPUs(0))
			}
		}
		l.cpusetIs(t, pod.Name, gpunode.CPUs(0))

		// Without GPUs there is nothing to pin to.
		l.create(t, gpunode.Pod("cpu-only", 0))
		l.running(t, "cpu-only")
	})

	t.Run("policy static: left alone", func(t *testing.T) {
		l := startBeside(t, gpunode.Config{
			Agent: true, NRI: true, AgentArgs: []string{"--nri=pin"},
			Kubelet: map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"},
		})
		c := l.pinned(t, metav1.ConditionFalse)
		if c.Reason != "CPUManagerStatic" || !strings.Contains(c.Message, `policy "static"`) {
			t.Errorf("condition %s: %s", c.Reason, c.Message)
		}
		t.Logf("%s: %s", c.Reason, c.Message)
		online, err := os.ReadFile("/sys/devices/system/cpu/online")
		if err != nil {
			t.Fatal(err)
		}
		all := strings.TrimSpace(string(online))
		l.create(t, gpunode.Pod("single", 1))
		pod := l.running(t, "single")
		for _, o := range l.observe(t, pod) {
			if o.Report.CPUs != all {
				t.Errorf("it runs on CPUs %s, want %s: kubelet's shared pool", o.Report.CPUs, all)
			}
		}
	})
}

// confined waits until the node's status has the CPUs of the pod's container. The agent may publish
// kubelet's record before the runtime has made the container.
func (e *testEnv) confined(t *testing.T, pod *v1.Pod, want string) {
	t.Helper()
	testkit.Eventually(t, patience, "the node's status says CPUs "+want+" of "+pod.Name, func(ctx context.Context) (bool, string) {
		topology, err := e.Topology(ctx)
		if err != nil {
			return false, err.Error()
		}
		return slices.ContainsFunc(topology.Status.Allocations, func(a v1alpha1.Allocation) bool {
			return a.PodUID == pod.UID && a.State == v1alpha1.StateConfirmed && a.CPUs == want
		}), fmt.Sprintf("%+v", topology.Status.Allocations)
	})
}

// cpusetIs waits until the annotations agree with the container's CPUs.
func (e *testEnv) cpusetIs(t *testing.T, name, want string) {
	t.Helper()
	testkit.Eventually(t, patience, "the cpuset of "+name+" is "+want, func(ctx context.Context) (bool, string) {
		pod, err := e.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		a, err := allocation.Parse(pod.Annotations[allocation.Key])
		if err != nil {
			return false, err.Error()
		}
		return a.CPUSet == want && pod.Annotations[allocation.CPUSetKey] == want, fmt.Sprintf("%v", pod.Annotations)
	})
}
