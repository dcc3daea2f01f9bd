// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

func TestEqualPodBursts(t *testing.T) {
	t.Run("8 of one GPU each", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		random := rand.New(rand.NewPCG(4, 8))
		for round := range 5 {
			order := random.Perm(8)
			var pods []*v1.Pod
			for i, g := range order {
				pods = append(pods, c.bind(app(8*round+i, 1), choice{"app": ids(g)}))
			}
			for _, i := range random.Perm(8) {
				c.mustAdmit(pods[i])
			}
			for i, g := range order {
				c.mustHold(pods[i], choice{"app": ids(g)})
				c.end(pods[i])
			}
		}
		diff(t, "questions answered with the choice", 40, c.decisions("steered"))
	})
	t.Run("2, 2, 2 and 1", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		sets := [][]string{ids(0, 6), ids(1, 5), ids(2, 4), ids(7)}
		var pods []*v1.Pod
		for i, s := range sets {
			pods = append(pods, c.bind(app(i, len(s)), choice{"app": s}))
		}
		if refused := c.AdmitAll(pods...); len(refused) > 0 {
			t.Fatalf("refused: %v", refused)
		}
		for i, s := range sets {
			c.mustHold(pods[i], choice{"app": s})
		}
	})
	t.Run("of two containers each, all of the same size", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		pod := func(i int) *v1.Pod {
			return devicemanager.Pod(app(i, 0).Name, i, devicemanager.Container("a", gpu, 1), devicemanager.Container("b", gpu, 1))
		}
		wants := []choice{{"a": ids(7), "b": ids(0)}, {"a": ids(3), "b": ids(4)}, {"a": ids(2), "b": ids(6)}}
		var pods []*v1.Pod
		for i, w := range wants {
			pods = append(pods, c.bind(pod(i), w))
		}
		for _, i := range []int{2, 0, 1} {
			c.mustAdmit(pods[i])
		}
		for i, w := range wants {
			c.mustHold(pods[i], w)
		}
	})
	t.Run("on a kubelet that has no PodResources Get, sets stay disjoint whoever gets which", func(t *testing.T) {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletPodResourcesGet, false)
		c := startChain(t, chainOptions{})
		sets := [][]string{ids(0, 6), ids(1, 5), ids(2, 4), ids(3, 7)}
		var pods []*v1.Pod
		for i, s := range sets {
			pods = append(pods, c.bind(app(i, 2), choice{"app": s}))
		}
		for _, i := range []int{3, 1, 0, 2} {
			c.mustAdmit(pods[i])
		}
		for _, p := range pods {
			got := c.held(p)["app"]
			if !slices.ContainsFunc(sets, func(s []string) bool { return slices.Equal(s, got) }) {
				t.Errorf("%s holds %v, which nobody chose", p.Name, got)
			}
		}
		if guesses := c.metric("nvtopo_agent_identity_total", "guess"); guesses == 0 {
			t.Error("no guess was counted")
		}
	})
	t.Run("and in the order of creation everybody gets its own there", func(t *testing.T) {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletPodResourcesGet, false)
		c := startChain(t, chainOptions{})
		sets := [][]string{ids(0, 6), ids(1, 5), ids(2, 4), ids(3, 7)}
		var pods []*v1.Pod
		for i, s := range sets {
			pods = append(pods, c.bind(app(i, 2), choice{"app": s}))
		}
		c.mustAdmit(pods...)
		for i, s := range sets {
			diff(t, pods[i].Name, choice{"app": s}, c.held(pods[i]))
		}
	})
}

func TestStrictMode(t *testing.T) {
	t.Run("what fits starts", func(t *testing.T) {
		c := startChain(t, chainOptions{strict: true})
		p := c.bind(devicemanager.WithInit(app(0, 4), devicemanager.Container("init", gpu, 2)), choice{"init": ids(2, 5), "app": ids(0, 2, 5, 7)})
		c.mustAdmit(p)
		c.mustHold(p, choice{"init": ids(2, 5), "app": ids(0, 2, 5, 7)})
	})
	t.Run("a pod of another scheduler starts", func(t *testing.T) {
		c := startChain(t, chainOptions{strict: true})
		p := c.bind(app(0, 2), nil)
		c.mustAdmit(p)
		c.mustHold(p, choice{"app": ids(0, 1)})
	})
	t.Run("a container whose annotation says otherwise does not start, and starts again once it is right", func(t *testing.T) {
		c := startChain(t, chainOptions{strict: true})
		p := c.bind(app(0, 2), choice{"app": ids(0, 3)})
		c.mustAdmit(p)
		other := annotate(t, app(0, 2), choice{"app": ids(5, 6)}).Annotations
		right := p.Annotations
		c.api.update(p.UID, func(p *v1.Pod) { p.Annotations = other })
		_, err := c.StartContainer(t.Context(), p, "app")
		if err == nil {
			t.Fatal("it started")
		}
		mentions(t, err.Error(), "G0", "G5")
		c.api.update(p.UID, func(p *v1.Pod) { p.Annotations = right })
		c.mustHold(p, choice{"app": ids(0, 3)})
	})
	t.Run("containers start again while the API server is away", func(t *testing.T) {
		c := startChain(t, chainOptions{strict: true})
		p := c.bind(app(0, 2), choice{"app": ids(0, 3)})
		c.mustAdmit(p)
		c.api.down = true
		c.mustHold(p, choice{"app": ids(0, 3)})
	})
	t.Run("with 4 then 2 an app starts with what kubelet passes on, unless the pod reads which container has which", func(t *testing.T) {
		c := startChain(t, chainOptions{strict: true})
		for i := range 24 { // kubelet's random choice is right once in six
			p := devicemanager.WithInit(app(i, 2), devicemanager.Container("init", gpu, 4))
			reads := i%2 == 1
			if reads {
				p = refersToChoice(p)
			}
			p = c.bind(p, choice{"init": ids(0, 1, 2, 3), "app": ids(0, 1)})
			refusal := c.Admit(p)
			_, err := c.StartContainer(t.Context(), p, "app")
			got := c.held(p)["app"]
			want := slices.Equal(got, ids(0, 1)) || (!reads && len(got) == 2 && partOf(got, ids(0, 1, 2, 3)))
			if starts := refusal == nil && err == nil; starts != want {
				t.Errorf("reads its annotation: %t; kubelet gave %v, chosen were G0 and G1: refusal %v, start %v", reads, got, refusal, err)
			}
			c.end(p)
		}
	})
}

func TestTopologyManager(t *testing.T) {
	policies := []string{"best-effort", "restricted", "single-numa-node"}
	t.Run("a choice inside what kubelet hints at is honoured under every policy", func(t *testing.T) {
		for _, policy := range policies {
			c := startChain(t, chainOptions{numa: 2, kubelet: devicemanager.Options{NUMANodes: 2, Policy: policy}})
			p, q := c.bind(app(0, 2), choice{"app": ids(1, 2)}), c.bind(app(1, 2), choice{"app": ids(0, 3)})
			r := c.bind(app(2, 3), choice{"app": ids(4, 6, 7)})
			c.mustAdmit(q, p, r)
			c.mustHold(p, choice{"app": ids(1, 2)})
			c.mustHold(q, choice{"app": ids(0, 3)})
			c.mustHold(r, choice{"app": ids(4, 6, 7)})
			c.stop()
		}
	})
	t.Run("a choice outside of it is repaired inside, and counted", func(t *testing.T) {
		c := startChain(t, chainOptions{numa: 2, kubelet: devicemanager.Options{NUMANodes: 2, Policy: "single-numa-node"}})
		p := c.bind(app(0, 2), choice{"app": ids(4, 5)})
		c.mustAdmit(p)
		c.mustHold(p, choice{"app": best(t, ids(0, 1, 2, 3), 2)})
		diff(t, "forced or in conflict", 1, c.decisions("forced")+c.decisions("conflict"))
	})
	t.Run("strict refuses that", func(t *testing.T) {
		c := startChain(t, chainOptions{strict: true, numa: 2, kubelet: devicemanager.Options{NUMANodes: 2, Policy: "single-numa-node"}})
		mentions(t, c.refuse(c.bind(app(0, 2), choice{"app": ids(4, 5)})), "G4")
	})
	t.Run("devices taken unasked that were chosen for the pod are let through", func(t *testing.T) {
		c := startChain(t, chainOptions{strict: true, numa: 2, kubelet: devicemanager.Options{NUMANodes: 2, Policy: "restricted"}})
		p := c.bind(app(0, 4), choice{"app": ids(0, 1, 2, 3)})
		c.mustAdmit(p)
		c.mustHold(p, choice{"app": ids(0, 1, 2, 3)})
	})
	t.Run("devices taken unasked that were not chosen for it are refused in strict mode", func(t *testing.T) {
		c := startChain(t, chainOptions{strict: true, numa: 2, kubelet: devicemanager.Options{NUMANodes: 2, Policy: "restricted"}})
		p := c.bind(app(0, 4), choice{"app": ids(4, 5, 6, 7)})
		refusal := c.Admit(p)
		if refusal == nil {
			_, err := c.StartContainer(t.Context(), p, "app")
			if err == nil {
				t.Errorf("it started with %v", c.held(p))
			}
		}
	})
	t.Run("with NUMA nodes stripped any choice is honoured", func(t *testing.T) {
		for _, policy := range policies {
			c := startChain(t, chainOptions{numa: 2, strip: true, kubelet: devicemanager.Options{NUMANodes: 2, Policy: policy}})
			p := c.bind(app(0, 2), choice{"app": ids(3, 4)})
			c.mustAdmit(p)
			c.mustHold(p, choice{"app": ids(3, 4)})
			c.stop()
		}
	})
}

// TestPassedThroughCalls checks that calls that the agent does not answer pass through unchanged.
func TestPassedThroughCalls(t *testing.T) {
	t.Run("our own device plugin, and an inner socket beside the registry's", func(t *testing.T) {
		c := startChain(t, chainOptions{innerDir: filepath.Dir(registrySocket)})
		devices, err := deviceplugin.Plain("S", 4, 2)
		if err != nil {
			t.Fatal(err)
		}
		own, err := deviceplugin.New(deviceplugin.Config{
			Resource: "example.com/simulated", Devices: devices, PluginDir: devicemanager.PluginDir, KubeletSocket: registrySocket,
		}, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- own.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		c.WaitAllocatable(t, "example.com/simulated", 4)
		for round := range 2 {
			p := devicemanager.Pod(fmt.Sprintf("simulated-%d", round), round, devicemanager.Container("app", "example.com/simulated", 2))
			want := []string{fmt.Sprintf("S%d", round), "S3"}
			c.api.put(annotateResources(t, p, map[string]choice{"example.com/simulated": {"app": want}}))
			c.mustAdmit(p)
			diff(t, "checkpoint", choice{"app": want}, c.held(p))
			env, err := c.StartContainer(t.Context(), p, "app")
			if err != nil {
				t.Fatal(err)
			}
			seen := strings.Split(env[deviceplugin.DefaultEnv], ",")
			slices.Sort(seen)
			diff(t, "environment", want, seen)
			c.told[key("example.com/simulated", want)]++ // this plugin keeps no ledger
			c.end(p)
			c.restart(t, devicemanager.Restart{})
			c.waitReady()
			c.WaitAllocatable(t, "example.com/simulated", 4)
		}
	})
	t.Run("kubelet sees the inner plugin's devices, health and NUMA nodes as they are", func(t *testing.T) {
		c := startChain(t, chainOptions{numa: 2})
		devices := devicemanager.Devices("G", 8, 2)
		devices[6].Health = pluginapi.Unhealthy
		c.inner[gpu].SetDevices(devices)
		c.WaitAllocatable(t, gpu, 7)
		got, err := c.agent.client.Allocatable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		for _, d := range got[gpu] {
			n := 0
			if d.ID > "G3" {
				n = 1
			}
			diff(t, "NUMA nodes of "+d.ID, []int{n}, d.NUMANodes)
			seen = append(seen, d.ID)
		}
		diff(t, "allocatable", ids(0, 1, 2, 3, 4, 5, 7), seen)
		capacity, _ := c.Capacity(gpu)
		diff(t, "capacity", int64(8), capacity)
	})
	t.Run("the inner plugin's PreStartContainer is asked if it wants that", func(t *testing.T) {
		c := startChain(t, chainOptions{})
		asked := 0
		devicemanager.StartPlugin(t, devicemanager.PluginOptions{
			Resource: "example.com/nic", KubeletSocket: registrySocket,
			Devices: devicemanager.Devices("N", 2, 0), PreStart: func([]string) error { asked++; return nil },
		})
		c.WaitAllocatable(t, "example.com/nic", 2)
		p := devicemanager.Pod("nic", 0, devicemanager.Container("app", "example.com/nic", 1))
		c.api.put(p)
		c.mustAdmit(p)
		if _, err := c.StartContainer(t.Context(), p, "app"); err != nil {
			t.Fatal(err)
		}
		diff(t, "asked", 1, asked)
		for _, e := range c.Checkpoint(t) {
			c.told[key(e.Resource, e.IDs)]++ // this plugin keeps no ledger
		}
	})
}
