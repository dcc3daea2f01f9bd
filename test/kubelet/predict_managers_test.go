// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math/rand/v2"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
)

// TestManagerPrediction compares the prediction with kubelet's managers: not only the verdict but from
// where every pod's exclusive CPUs and memory are taken, which decides about later containers and pods.
func TestManagerPrediction(t *testing.T) {
	if os.Getenv("SKIP_NODE") == "1" {
		t.Skip("SKIP_NODE=1")
	}
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CPUManagerPolicyAlphaOptions, true)
	r := rand.New(rand.NewPCG(uint64(predictNumber(t, seedEnv, 7)), 7))
	cases, admitted := predictNumber(t, casesEnv, defaultCases)/2, 0
	for done := 0; done < cases && !t.Failed(); {
		m := randomLayout(r)
		setup := randomSetup(r, m)
		if !setup.staticCPUs && !setup.staticMemory {
			continue
		}
		k := startWholeKubelet(t, m, setup, nil)
		machine := predictedMachine(t, m, setup)
		for i := range perMachine {
			for pods := k.pods(); len(pods) > 0 && r.IntN(3) == 0; pods = k.pods() {
				k.remove(pods[r.IntN(len(pods))])
			}
			pod := randomPod(r, i+1, m)
			for j := range pod.Spec.InitContainers {
				withoutGPUs(&pod.Spec.InitContainers[j])
			}
			for j := range pod.Spec.Containers {
				withoutGPUs(&pod.Spec.Containers[j])
			}
			before := k.predictedState(machine)
			after := before
			want := machine.Replay(&after, predictedPod(pod), &kubeletadmission.Wish{})
			err := k.admit(pod)
			done++
			if (err == nil) != want {
				t.Errorf("predicted %t, kubelet says %v\n%s\npod %s", want, err, describeCase(m, setup, nil), describePod(pod))
				break
			}
			if err != nil {
				continue
			}
			admitted++
			now := k.predictedState(machine)
			for id := range m.nodes {
				if x, y := machine.FreeCPUs(&after, id), machine.FreeCPUs(&now, id); x != y {
					t.Errorf("node %d has %d CPUs left, predicted %d (before %d)\n%s\npod %s", id, y, x, machine.FreeCPUs(&before, id), describeCase(m, setup, nil), describePod(pod))
				}
				if x, y := machine.FreeMemory(&after, id), machine.FreeMemory(&now, id); x != y {
					t.Errorf("node %d has %d bytes left, predicted %d\n%s\npod %s", id, y, x, describeCase(m, setup, nil), describePod(pod))
				}
			}
			if t.Failed() {
				break
			}
		}
		k.stop()
	}
	t.Logf("%d pods, %d admitted", cases, admitted)
}

func withoutGPUs(c *v1.Container) {
	for _, name := range []v1.ResourceName{gpu, fpga} {
		delete(c.Resources.Limits, name)
		delete(c.Resources.Requests, name)
	}
}

func predictedMachine(t *testing.T, m *machineLayout, setup *kubeletSetup) *kubeletadmission.Machine {
	t.Helper()
	policy, err := kubeletadmission.ParsePolicy(setup.policy)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []kubeletadmission.Node
	for i := range m.nodes {
		n := &m.nodes[i]
		nodes = append(nodes, kubeletadmission.Node{ID: n.ID, CPUs: n.CPUs, Siblings: n.Siblings, Socket: m.sockets[i], Distances: n.Distances})
	}
	machine, err := kubeletadmission.New(&kubeletadmission.Config{
		Policy: policy, PodScope: setup.scope == "pod", StaticCPUs: setup.staticCPUs, StaticMemory: setup.staticMemory,
		TopologyOptions: setup.topologyOptions, CPUOptions: setup.cpuOptions, ReservedCPUs: setup.reserved,
	}, nodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// predictedState returns kubelet's account in the form of the prediction.
func (k *wholeKubelet) predictedState(m *kubeletadmission.Machine) kubeletadmission.State {
	memory := map[int]kubeletadmission.Memory{}
	for id, n := range k.memory.State().GetMachineState() {
		table := n.MemoryMap[v1.ResourceMemory]
		memory[id] = kubeletadmission.Memory{Free: int64(table.Free), Allocatable: int64(table.Allocatable), Cells: n.Cells}
	}
	return m.NewState(nvtopo.NewCPUSet(k.exclusive().UnsortedList()...), memory)
}

// predictedPod returns a pod without GPUs in the form of the prediction.
func predictedPod(pod *v1.Pod) *kubeletadmission.Pod {
	var cs []kubeletadmission.Container
	for _, c := range containersOf(pod) {
		a := kubeletadmission.Container{Kind: kubeletadmission.App}
		switch {
		case isInit(pod, c.Name) && c.RestartPolicy == nil:
			a.Kind = kubeletadmission.Init
		case isInit(pod, c.Name):
			a.Kind = kubeletadmission.Sidecar
		}
		if cpu := c.Resources.Limits.Cpu(); !cpu.IsZero() { // only a Guaranteed pod's containers have limits
			if whole := cpu.Value(); whole*1000 == cpu.MilliValue() {
				a.CPUs = int(whole)
			}
			a.Memory = c.Resources.Limits.Memory().Value()
		}
		cs = append(cs, a)
	}
	return kubeletadmission.NewPod(cs)
}
