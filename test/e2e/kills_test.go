// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

const (
	// defaultKillPods is the number of pods that come and go while programs are killed.
	defaultKillPods = 30
	// killHold is the longest time for which each keeps its GPUs: long enough for a kill or two.
	killHold = 2 * time.Second
	// killPause is the longest pause between the node's recovery and the next kill. However long the
	// recovery takes, a kubelet that is killed again before it has started a pod would make no progress.
	killPause = 4 * time.Second
)

// killer ends programs of the node with SIGKILL at random moments and starts them again. Between two
// kills the node starts at least one pod, so that at least as many run as there are kills, however long a
// start takes.
type killer struct {
	victims []*realnode.Process
	served  func() (ran, all int) // pods that the node has started so far, and started or refused
	rng     *rand.Rand
	kills   map[string]int
}

func (k *killer) run(ctx context.Context, t *testing.T) {
	t.Helper()
	sleep := func(d time.Duration) bool {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(d):
			return true
		}
	}
	before := 0
	back := func() bool {
		for ran, _ := k.served(); ran == before; ran, _ = k.served() {
			if !sleep(50 * time.Millisecond) {
				return false
			}
		}
		return sleep(time.Duration(k.rng.Int64N(int64(killPause))))
	}
	for back() {
		victim := k.victims[k.rng.IntN(len(k.victims))]
		if err := victim.Kill(); err != nil {
			t.Errorf("kill: %v", err)
			return
		}
		k.kills[victim.Name()]++
		sleep(time.Duration(k.rng.Int64N(int64(1500 * time.Millisecond))))
		// Also after the end: later steps need all of them.
		if err := victim.Restart(); err != nil {
			t.Errorf("restart: %v", err)
			return
		}
		before, _ = k.served()
	}
}

// TestKills checks that with kubelet, the inner plugin and the agent killed at random moments no pod
// loses a GPU and no two pods have the same.
func TestKills(t *testing.T) {
	rng := seed(t)
	l := start(t, gpunode.Config{Agent: true})
	survivors, before := l.survivors(t)
	n := number(t, "NVTOPO_E2E_KILL_PODS", defaultKillPods)
	others := 0 // pods that run with other GPUs than the chosen ones
	pods := workload(n, rng)
	judge := func(pod *v1.Pod, containers []gpunode.Observation) []string {
		if len(differences(pod.Name, containers)) > 0 {
			others++
		}
		return besides(before, pod, containers)
	}
	// The killer has a separate source of random numbers: the two run concurrently.
	c := &churn{env: l, patient: true, hold: killHold, rng: seed(t), judge: judge}
	k := &killer{
		victims: []*realnode.Process{l.Node.Kubelet(), l.Plugin, l.Agent}, served: c.served, rng: rng, kills: map[string]int{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.run(ctx, t)
	}()
	t.Cleanup(func() { // before the node ends
		cancel()
		<-done
	})
	took := c.run(t, pods, burst/2)
	cancel()
	<-done
	t.Logf("%d pods ran in %.1f s while these were killed: %v; %d of them with other GPUs than chosen", c.looked, took.Seconds(), k.kills, others)
	t.Logf("refused or not started by kubelet: %d", total(c.failed))
	for why, count := range c.failed {
		t.Logf("%4d x %s", count, why)
	}
	for _, p := range c.problems {
		complain(t, p)
	}
	if len(k.kills) == 0 {
		t.Error("nothing was killed")
	}
	if c.looked+total(c.failed) != n {
		t.Errorf("%d ran and %d were refused or not started, of %d", c.looked, total(c.failed), n)
	}
	if c.looked < total(k.kills) {
		t.Errorf("only %d of %d pods ran, with %d kills", c.looked, n, total(k.kills))
	}
	l.settled(t, survivors, before)
}

func total(counts map[string]int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// inside returns the faults of a pod, even of one without the chosen GPUs: kubelet's record must equal
// the containers' environment, and no two containers may share a GPU.
func inside(pod *v1.Pod, containers []gpunode.Observation) []string {
	var out []string
	for _, c := range containers {
		if len(c.Environment) != c.Asked || !slices.Equal(c.Checkpoint, c.Environment) {
			out = append(out, fmt.Sprintf("pod %s, container %s asked for %d: checkpoint %v, environment %v",
				pod.Name, c.Container, c.Asked, c.Checkpoint, c.Environment))
		}
	}
	return append(out, shared(pod.Name, containers)...)
}

// survivors creates two pods that run throughout a test, and returns them and the state of their
// containers.
func (e *testEnv) survivors(t *testing.T) (pods []*v1.Pod, seen map[string][]gpunode.Observation) {
	t.Helper()
	seen = map[string][]gpunode.Observation{}
	for i, gpus := range []int{1, 2} {
		name := fmt.Sprintf("survivor-%d", i)
		e.create(t, gpunode.Pod(name, gpus))
		pod := e.running(t, name)
		pods = append(pods, pod)
		seen[name] = e.observe(t, pod)
		for _, d := range differences(name, seen[name]) {
			complain(t, d)
		}
	}
	return pods, seen
}

// besides returns the faults of a pod that runs beside others with known containers: those of inside, and
// each GPU that it shares with them.
func besides(others map[string][]gpunode.Observation, pod *v1.Pod, containers []gpunode.Observation) []string {
	out := inside(pod, containers)
	for name, theirs := range others {
		for _, id := range held(containers) {
			if slices.Contains(held(theirs), id) {
				out = append(out, fmt.Sprintf(testkit.ViolationPrefix+"pod %s has %s, which is %s's", pod.Name, id, name))
			}
		}
	}
	return out
}

// settled checks that the survivors are unchanged once all programs run again.
func (e *testEnv) settled(t *testing.T, survivors []*v1.Pod, before map[string][]gpunode.Observation) {
	t.Helper()
	if err := e.Node.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.WaitGPUs(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range survivors {
		now, err := e.Client.CoreV1().Pods(s.Namespace).Get(t.Context(), s.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if now.Status.Phase != v1.PodRunning || now.Status.ContainerStatuses[0].ContainerID != s.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("%s was Running in %s and is %s in %s", s.Name, s.Status.ContainerStatuses[0].ContainerID,
				now.Status.Phase, now.Status.ContainerStatuses[0].ContainerID)
		}
		after := e.observe(t, now)
		for _, d := range differences(s.Name, after) {
			complain(t, d)
		}
		if !slices.Equal(held(before[s.Name]), held(after)) {
			t.Errorf("%s had %v and has %v", s.Name, held(before[s.Name]), held(after))
		}
	}
}

// startFailed reports whether a container of the pod could not be started: containerd gives up a start if
// the kubelet that requested it is killed. If a second container runs, the pod is Running for ever and
// keeps its GPUs.
func startFailed(pod *v1.Pod) bool {
	return pod.Spec.RestartPolicy == v1.RestartPolicyNever && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s v1.ContainerStatus) bool {
		return s.State.Terminated != nil && s.State.Terminated.Reason == "StartError"
	})
}

func TestStartFailed(t *testing.T) {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	unstarted := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128}}
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}}
	for name, tc := range map[string]struct {
		states []v1.ContainerState
		init   v1.ContainerState
		policy v1.RestartPolicy
		want   bool
	}{
		"both containers run":                            {states: []v1.ContainerState{running, running}, policy: v1.RestartPolicyNever},
		"one could not be started, the other runs":       {states: []v1.ContainerState{unstarted, running}, policy: v1.RestartPolicyNever, want: true},
		"one ended by itself, the other runs":            {states: []v1.ContainerState{ended, running}, policy: v1.RestartPolicyNever},
		"one could not be started, kubelet starts again": {states: []v1.ContainerState{unstarted, running}, policy: v1.RestartPolicyAlways},
		"a sidecar could not be started":                 {states: []v1.ContainerState{running}, init: unstarted, policy: v1.RestartPolicyNever},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: tc.policy}}
			pod.Status.InitContainerStatuses = []v1.ContainerStatus{{State: tc.init}}
			for _, s := range tc.states {
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{State: s})
			}
			if got := startFailed(pod); got != tc.want {
				t.Errorf("startFailed(%v) = %v, want %v", pod.Status, got, tc.want)
			}
		})
	}
}
