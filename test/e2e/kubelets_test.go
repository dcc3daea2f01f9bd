// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// nextKubelet is the program of the newest kubelet that the agent is tested with, beside that of the
// product's own Kubernetes. nextKubeletVersion begins its version.
const nextKubelet, nextKubeletVersion = "kubelet-1.37", "v1.37."

// TestNextKubelet runs ten pods on the newest kubelet, whose state files have another format: they get
// the GPUs that the scheduler chose, and the agent publishes the state of kubelet's CPU and memory
// manager.
func TestNextKubelet(t *testing.T) {
	l := startBeside(t, gpunode.Config{
		NVIDIA: true, Agent: true, KubeletProgram: nextKubelet,
		Kubelet: map[string]any{
			"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "memoryManagerPolicy": "Static",
			"systemReserved": map[string]any{"memory": "100Mi"},
			"reservedMemory": []map[string]any{{"numaNode": 0, "limits": map[string]any{"memory": "100Mi"}}},
		},
	})
	l.wantKubelet(t, nextKubeletVersion)
	const pods = 10
	rng := seed(t)
	c := &churn{env: l, hold: nvidiaHold, rng: rng, judge: judgePod}
	c.report(t, pods, c.run(t, workload(pods, rng), burst))

	l.create(t, gpunode.Pod("own", 1, func(p *v1.Pod) {
		limits := p.Spec.Containers[0].Resources.Limits
		limits[v1.ResourceCPU], limits[v1.ResourceMemory] = resource.MustParse("1"), resource.MustParse("64Mi")
	}))
	own := l.running(t, "own")
	cpus := l.observe(t, own)[0].Report.CPUs
	testkit.Eventually(t, patience, "the node's status has what kubelet's managers hold", func(ctx context.Context) (bool, string) {
		topology, err := l.Topology(ctx)
		if err != nil {
			return false, err.Error()
		}
		k := topology.Status.Kubelet
		if k == nil {
			return false, "no status.kubelet"
		}
		node, err := l.Client.CoreV1().Nodes().Get(ctx, topology.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return k.Version == node.Status.NodeInfo.KubeletVersion && k.ExclusiveCPUs == cpus && len(k.Memory) > 0 &&
			k.Memory[0].Free.Cmp(k.Memory[0].Allocatable) < 0, fmt.Sprintf("%+v, want CPUs %s", k, cpus)
	})
}

// defaultRestarts is the number of restarts in TestAgentRestarts; NVTOPO_E2E_RESTARTS overrides it.
const defaultRestarts = 5

// TestAgentRestarts checks that the agent registers with either kubelet after each restart, killed or
// stopped, while pods come and go. Running pods keep their GPUs.
func TestAgentRestarts(t *testing.T) {
	for name, kubelet := range map[string]string{"the product's kubelet": "", "the newest kubelet": nextKubelet} {
		t.Run(name, func(t *testing.T) {
			l := startBeside(t, gpunode.Config{Agent: true, KubeletProgram: kubelet})
			if kubelet == nextKubelet {
				l.wantKubelet(t, nextKubeletVersion)
			}
			rng := seed(t)
			survivors, had := l.survivors(t)
			c := &churn{env: l, patient: true, hold: time.Second, rng: rng, judge: func(pod *v1.Pod, containers []gpunode.Observation) []string {
				return besides(had, pod, containers)
			}}
			n, restarts := number(t, "NVTOPO_E2E_RESTARTS", defaultRestarts), 0
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				restarts = l.restartAgent(ctx, t, n, c.served)
			}()
			t.Cleanup(func() { // before the node ends
				cancel()
				<-done
			})
			made, refused := 0, map[string]int{}
			for over := false; !over; {
				pods := workload(burst, rng)
				c.run(t, pods, burst/2)
				made += len(pods)
				for why, count := range c.failed {
					refused[why] += count
				}
				l.only(t, survivors) // the next round has pods of the same names
				select {
				case <-done:
					over = true
				default:
				}
			}
			t.Logf("%d restarts while %d pods ran; refused or not started by kubelet: %d", restarts, c.looked, total(refused))
			for why, count := range refused {
				t.Logf("%4d x %s", count, why)
			}
			for _, p := range c.problems {
				complain(t, p)
			}
			if restarts != n || c.looked < n || c.looked+total(refused) != made {
				t.Errorf("%d restarts of %d, each beside a pod at least; %d pods ran and %d were refused, of %d", restarts, n, c.looked, total(refused), made)
			}
			l.settled(t, survivors, had)
		})
	}
}

// only waits until only these pods exist.
func (e *testEnv) only(t *testing.T, pods []*v1.Pod) {
	t.Helper()
	testkit.Eventually(t, patience, "all other pods are gone", func(ctx context.Context) (bool, string) {
		list, err := e.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		return len(list.Items) == len(pods), fmt.Sprintf("%d pods, want %d", len(list.Items), len(pods))
	})
}

// restartAgent restarts the agent n times, every second time with SIGKILL, and returns how often kubelet
// got its devices again. Before each restart but the first the node has started at least one more pod.
func (e *testEnv) restartAgent(ctx context.Context, t *testing.T, n int, served func() (ran, all int)) int {
	t.Helper()
	for i := range n {
		end := e.Agent.Kill
		if i%2 == 0 {
			end = func() error { return e.Agent.Stop(ctx) }
		}
		err := end()
		if err == nil {
			err = e.Agent.Restart()
		}
		if err == nil {
			err = e.waitRegistered(ctx)
		}
		before, _ := served()
		for ran := before; err == nil && ran == before && ctx.Err() == nil; ran, _ = served() {
			time.Sleep(20 * time.Millisecond)
		}
		if ctx.Err() != nil {
			return i // the test has failed elsewhere
		}
		if err != nil {
			t.Errorf("restart %d of the agent: %v", i+1, err)
			return i
		}
	}
	return n
}

// wantKubelet fails the test unless the node's kubelet has this version.
func (e *testEnv) wantKubelet(t *testing.T, version string) {
	t.Helper()
	nodes, err := e.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		if got := nodes.Items[i].Status.NodeInfo.KubeletVersion; !strings.HasPrefix(got, version) {
			t.Fatalf("kubelet of node %s is %s, want %s", nodes.Items[i].Name, got, version)
		}
	}
}

// waitRegistered waits until the running agent has registered with kubelet and kubelet has its devices.
func (e *testEnv) waitRegistered(ctx context.Context) error {
	var last string
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		metrics, err := e.AgentMetrics(ctx)
		if err != nil {
			last = err.Error()
			return false, nil //nolint:nilerr // it has just been started
		}
		last = "no registration"
		if family := metrics["nvtopo_agent_registrations_total"]; family != nil {
			last = family.String()
			for _, m := range family.Metric {
				if labelled(m, "side", "kubelet") && labelled(m, "result", "ok") {
					return true, nil
				}
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the agent has registered: %w; last seen: %s", err, last)
	}
	return e.WaitDevices(ctx)
}
