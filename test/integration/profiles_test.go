// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// testTwoProfiles fills a node with pods of two profiles, all created at once.
func (e *testEnv) testTwoProfiles(t *testing.T) {
	s := e.slot(t, e.freshName("shared"), "dgx1-v100")
	var names []string
	for i := range s.graph.Len() {
		name := e.freshName("shared-pod")
		names = append(names, name)
		e.create(t, gpuPod(name, bothWrites[i%2], 1).NodeSelector(host(s.node)).Obj())
	}
	var used nvtopo.Mask
	for _, name := range names {
		c := choiceOf(t, e.bound(t, name), s.graph)
		if used&c.set != 0 {
			t.Errorf("pod %s has GPU %v, which another has too", name, c.set.Positions())
		}
		used |= c.set
	}
	if used != s.free {
		t.Errorf("GPUs %v are used, want all of %v", used.Positions(), s.free.Positions())
	}
}

// testForeign puts a pod of the stock profile on the node: nobody knows which
// GPUs it has.
func (e *testEnv) testForeign(t *testing.T) {
	for _, p := range bothWrites {
		t.Run(p, func(t *testing.T) {
			node := e.freshName("foreign")
			g := e.node(t, node, "dgx1-v100")
			e.create(t, gpuPod(node+"-foreign", defaultProfile, 2).NodeSelector(host(node)).Obj())
			for key := range e.bound(t, node+"-foreign").Annotations {
				if allocation.IsOutputKey(key) {
					t.Errorf("the stock profile wrote %s", key)
				}
			}
			linked := gpuPod(node+"-linked", p, 2).Annotation(podrequest.MinLinkKey, "NVLINK").NodeSelector(host(node)).Obj()
			e.wantRefused(t, linked, placement.UnknownDevices.String())
			for name, a := range map[string]notes{
				"single": {podrequest.TopologyPolicyKey: "single-numa-node"}, "restricted": {podrequest.TopologyPolicyKey: "restricted"},
				"fast": {podrequest.MinBandwidthKey: "1"},
			} {
				e.wantRefused(t, gpuPod(node+"-"+name, p, 2).Annotations(a).NodeSelector(host(node)).Obj(), placement.UnknownDevices.String())
				e.remove(t, node+"-"+name)
			}
			e.wantRefused(t, gpuPod(node+"-many", p, 7).NodeSelector(host(node)).Obj(), "Insufficient nvidia.com/gpu")
			e.remove(t, node+"-many")
			e.create(t, gpuPod(node+"-any", p, 4).NodeSelector(host(node)).Obj())
			any := choiceOf(t, e.bound(t, node+"-any"), g)
			if !any.Unconfirmed {
				t.Error("the choice beside a foreign pod is not marked unconfirmed")
			}
			// With the foreign pod gone its devices are known to be free.
			e.remove(t, node+"-foreign")
			if c := choiceOf(t, e.bound(t, linked.Name), g); c.Unconfirmed || c.set&any.set != 0 {
				t.Errorf("GPUs %v (unconfirmed %t) beside %v, want others, confirmed", c.set.Positions(), c.Unconfirmed, any.set.Positions())
			}
		})
	}
}

// testOnePlugin uses profiles with one of the two plugins.
func (e *testEnv) testOnePlugin(t *testing.T) {
	for _, p := range []string{topologyProfile, numaProfile} {
		t.Run(p, func(t *testing.T) {
			s := e.slot(t, e.freshName("alone"), "dgx1-v100")
			for _, gpus := range []int{1, 2, 4} {
				pod := gpuPod(e.freshName("alone-pod"), p, gpus).NodeSelector(host(s.node)).Obj()
				want, _ := s.best(t, pod)
				e.create(t, pod)
				c := choiceOf(t, e.bound(t, pod.Name), s.graph)
				if c.set != want {
					t.Errorf("%d GPUs: got %v, want %v", gpus, c.set.Positions(), want.Positions())
				}
				// CPUs are NUMAAffinity's business.
				if got, want := len(c.cpus), map[string]int{topologyProfile: 0, numaProfile: 2}[p]; got != want {
					t.Errorf("%d GPUs: %d CPUs are written, want %d", gpus, got, want)
				}
				s.free &^= c.set
			}
			e.wantRefused(t, gpuPod(e.freshName("alone-pod"), p,
				2).Annotation(podrequest.MinLinkKey, "NVLINK").NodeSelector(host(s.node)).Obj(), "Insufficient nvidia.com/gpu")
		})
	}
}

// testCPUOnly gives pods without GPUs their NUMA node and CPUs, if they ask.
func (e *testEnv) testCPUOnly(t *testing.T) {
	for _, p := range []string{preBindProfile, bindingProfile, numaProfile} {
		t.Run(p, func(t *testing.T) {
			s := e.slot(t, e.freshName("cpu"), "dgx1-v100")
			// One NUMA node cannot hold two of these.
			for i, a := range []notes{{podrequest.NUMAAffinityKey: "required"}, {podrequest.TopologyPolicyKey: "single-numa-node"}} {
				pod := gpuPod(e.freshName("cpu-pod"), p, 0).Annotations(a).CPU("30").Memory("8Gi").NodeSelector(host(s.node)).Obj()
				e.create(t, pod)
				c := choiceOf(t, e.bound(t, pod.Name), s.graph)
				if len(c.NUMANodes) != 1 || len(c.cpus) != 30 {
					t.Errorf("pod %d: NUMA nodes %v and CPUs %s, want one node and 30 CPUs", i, c.NUMANodes, c.CPUSet)
				}
				s.checkCPUs(t, pod, c)
				s.cpus = s.cpus.Minus(c.cpus)
			}
			e.wantRefused(t, gpuPod(e.freshName("cpu-pod"), p,
				0).Annotation(podrequest.NUMAAffinityKey, "required").CPU("15").Memory("8Gi").NodeSelector(host(s.node)).Obj(),
				placement.NoNUMACPU.String())
			plain := gpuPod(e.freshName("cpu-pod"), p, 0).NodeSelector(host(s.node)).Obj()
			e.create(t, plain)
			if got := e.bound(t, plain.Name).Annotations; len(got) != 0 {
				t.Errorf("a pod that asks for nothing of ours has annotations %v", got)
			}
		})
	}
}

// testRefusedConfigs starts schedulers that must not start.
func (e *testEnv) testRefusedConfigs(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	const bindOrder = "profiles[1]: with annotationWrite: Binding, plugins.bind.enabled must list one of [NUMAAffinity TopologyAware] before DefaultBinder"
	for name, tc := range map[string]struct {
		profile profile
		want    string
	}{
		"Binding, but DefaultBinder comes first": {
			profile{name: "p", write: "Binding", binders: []string{"DefaultBinder", topologyPlugin}}, bindOrder,
		},
		"Binding, but only DefaultBinder": {
			profile{name: "p", write: "Binding", binders: []string{"DefaultBinder"}}, bindOrder,
		},
		"weights with which other plugins outvote the links": {
			profile{name: "p", write: "PreBind", weight: 19}, "profiles[1]: weight 19 of TopologyAware: want ",
		},
		"names of plugins that are parts of ours": {
			profile{name: "p", write: "PreBind", plugins: []string{"TopologyAwareScore"}}, "{name: TopologyAware, weight: 25}",
		},
		"an argument that does not exist": {
			profile{name: "p", write: "PreBind", args: map[string]string{topologyPlugin: "bandwithWeight: 0.5"}},
			"args.bandwithWeight: there is no such field",
		},
		"an argument out of range": {
			profile{name: "p", write: "PreBind", args: map[string]string{topologyPlugin: "latencyWeight: 2"}}, "latencyWeight",
		},
		"plugins that disagree about the namespace": {
			profile{name: "p", write: "PreBind", args: map[string]string{numaPlugin: "namespace: elsewhere"}},
			"must be equal for every plugin and profile",
		},
		"plugins that disagree about where to show the state": {
			profile{name: "p", write: "PreBind", args: map[string]string{numaPlugin: "debugAddress: 127.0.0.1:1"}},
			"debugAddress, debugCertFile and debugKeyFile must be equal for every plugin and profile",
		},
		"an address for the state that is taken": {
			profile{name: "p", write: "PreBind", plugins: []string{topologyPlugin}, args: map[string]string{topologyPlugin: "debugAddress: " + taken.Addr().String()}},
			"address already in use",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer // read after the process ended
			s, err := e.tryScheduler(t, &log, tc.profile)
			if err == nil {
				t.Fatalf("the scheduler started; stopping it: %v", s.Stop(t.Context()))
			}
			if !strings.Contains(log.String(), tc.want) {
				t.Errorf("the scheduler says %q, want %q in it", log.String(), tc.want)
			}
		})
	}
}
