// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/check"
)

// node is a cluster with one real node.
type node struct {
	*gpunode.Lab
}

// TestNodeOfTwoReleases: on a real kubelet the scheduler and the agent are upgraded
// and rolled back, the agent also by a kill and while pods come. The containers
// that run go on running, with the GPUs that they have.
func TestNodeOfTwoReleases(t *testing.T) {
	if os.Getenv("SKIP_NODE") == "1" {
		t.Skip("SKIP_NODE=1: this needs root and a real node")
	}
	o, n := before(), after()
	l := startNode(t, gpunode.Config{Bin: testkit.Bin(), Agent: true, AgentProgram: o.program("nvtopo-node-agent"), Log: testkit.Log()})
	l.rollScheduler(t, o)

	var survivors []*v1.Pod
	first := map[string][]gpunode.Observation{}
	for i, pod := range []*v1.Pod{
		gpunode.Pod("survivor-0", 1), gpunode.Pod("survivor-1", 2, gpunode.WithInit("prepare", 2)),
	} {
		l.create(t, pod)
		pod = l.running(t, pod.Name)
		survivors = append(survivors, pod)
		first[pod.Name] = l.observe(t, pod)
		for _, d := range differences(first[pod.Name]) {
			t.Errorf("survivor %d: %s", i, d)
		}
	}
	if dir := os.Getenv("NVTOPO_SKEW_CAPTURE"); dir != "" {
		l.capture(t, dir)
	}
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"old scheduler, old agent", func() {}},
		{"upgraded scheduler", func() { l.rollScheduler(t, n) }},
		{"upgraded agent", func() { l.rollAgent(t, n, l.Agent.Kill) }},
		{"agent rolled back", func() { l.rollAgent(t, o, l.stopAgent(t)) }},
		{"agent upgraded while pods come", func() { l.underLoad(t, func() { l.rollAgent(t, n, l.stopAgent(t)) }) }},
		{"agent rolled back while pods come", func() { l.underLoad(t, func() { l.rollAgent(t, o, l.Agent.Kill) }) }},
		{"scheduler rolled back", func() { l.rollScheduler(t, o) }},
		{"agent upgraded before the scheduler", func() { l.rollAgent(t, n, l.stopAgent(t)) }},
	} {
		begun := time.Now()
		step.do()
		l.newcomer(t, step.what)
		l.untouched(t, step.what, survivors, first)
		l.sound(t, step.what)
		t.Logf("%5.1f s: %s", time.Since(begun).Seconds(), step.what)
	}
}

func startNode(t *testing.T, cfg gpunode.Config) *node {
	t.Helper()
	l, err := gpunode.Start(t.Context(), cfg)
	if err != nil {
		t.Fatalf("start a node: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if text, err := os.ReadFile(l.Node.Log("node-agent")); err == nil {
				t.Logf("the end of the agent's log:\n%s", text[max(0, len(text)-6000):])
			}
		}
		if err := l.Stop(); err != nil {
			t.Errorf("stop the node: %v", err)
		}
	})
	return &node{l}
}

// rollScheduler replaces the scheduler as a Deployment does.
func (l *node) rollScheduler(t *testing.T, r release) {
	t.Helper()
	next, err := l.Cluster.StartScheduler(t.Context(), devcluster.SchedulerOptions{
		Binary: r.program("nvtopo-scheduler"), Config: schedulerConfig(t, r), ServiceAccount: systemNamespace + "/nvtopo-scheduler",
	})
	if err != nil {
		t.Fatalf("the scheduler of the %s release: %v", r, err)
	}
	if err := l.Scheduler.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Scheduler = next
}

func (l *node) stopAgent(t *testing.T) func() error {
	t.Helper()
	return func() error { return l.Agent.Stop(t.Context()) }
}

// rollAgent ends the agent and starts that of a release.
func (l *node) rollAgent(t *testing.T, r release, end func() error) {
	t.Helper()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	begun := metav1.NewMicroTime(time.Now())
	if err := l.ReplaceAgent(t.Context(), r.program("nvtopo-node-agent")); err != nil {
		t.Fatalf("the agent of the %s release: %v", r, err)
	}
	testkit.Eventually(t, patience, "the agent of the "+r.name+" release vouches for the node", func(ctx context.Context) (bool, string) {
		if how := l.Agent.Ended(); how != "" {
			t.Fatalf("the agent of the %s release ended: %s", r, how)
		}
		lease, err := l.Client.CoordinationV1().Leases(systemNamespace).Get(ctx, "agent-"+l.nodeName(), metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return lease.Spec.RenewTime != nil && begun.Before(lease.Spec.RenewTime), fmt.Sprint(lease.Spec.RenewTime)
	})
	if err := l.WaitGPUs(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (l *node) nodeName() string { return l.Node.Name() }

func (l *node) create(t *testing.T, pod *v1.Pod) {
	t.Helper()
	if _, err := l.Client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create pod %s: %v", pod.Name, err)
	}
}

func (l *node) running(t *testing.T, name string) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	testkit.Eventually(t, patience, "pod "+name+" runs", func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = l.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return pod.Status.Phase == v1.PodRunning, fmt.Sprintf("%s %s %s %+v", pod.Status.Phase, pod.Status.Reason, pod.Status.Message, pod.Status.Conditions)
	})
	return pod
}

// remove deletes a pod and waits until kubelet has let it go.
func (l *node) remove(t *testing.T, name string) {
	t.Helper()
	pods := l.Client.CoreV1().Pods(metav1.NamespaceDefault)
	if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "pod "+name+" is gone", func(ctx context.Context) (bool, string) {
		_, err := pods.Get(ctx, name, metav1.GetOptions{})
		return err != nil, "it is there"
	})
}

func (l *node) observe(t *testing.T, pod *v1.Pod) []gpunode.Observation {
	t.Helper()
	var out []gpunode.Observation
	testkit.Eventually(t, patience, "the containers of "+pod.Name+" report", func(ctx context.Context) (bool, string) {
		var err error
		out, err = l.Observe(ctx, pod)
		return err == nil, fmt.Sprint(err)
	})
	return out
}

// differences says where the accounts of a pod's GPUs disagree.
func differences(containers []gpunode.Observation) []string {
	var out []string
	for _, c := range containers {
		if len(c.Environment) != c.Asked || !slices.Equal(c.Checkpoint, c.Environment) || c.Kind != gpunode.Init && !slices.Equal(c.Annotation, c.Checkpoint) {
			out = append(out, fmt.Sprintf("container %s asked for %d: annotation %v, checkpoint %v, environment %v",
				c.Container, c.Asked, c.Annotation, c.Checkpoint, c.Environment))
		}
	}
	return out
}

// newcomer runs a pod, which must get what was chosen, and lets it go.
func (l *node) newcomer(t *testing.T, when string) {
	t.Helper()
	name := "newcomer"
	l.create(t, gpunode.Pod(name, 2))
	for _, d := range differences(l.observe(t, l.running(t, name))) {
		t.Errorf("%s: %s: %s", when, name, d)
	}
	l.remove(t, name)
}

// underLoad does something while pods come. Each runs with GPUs of its own, or is
// refused by kubelet: while the agent is away there is no device plugin to ask.
func (l *node) underLoad(t *testing.T, do func()) {
	t.Helper()
	const pods = 5 // beside the survivors there is room for no more
	name := func(i int) string { return fmt.Sprintf("load-%d", i) }
	created := make(chan error, 1)
	ctx := t.Context()
	go func() {
		for i := range pods {
			if _, err := l.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, gpunode.Pod(name(i), 1), metav1.CreateOptions{}); err != nil {
				created <- err
				return
			}
			time.Sleep(300 * time.Millisecond)
		}
		created <- nil
	}()
	do()
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	owner := map[string]string{}
	refused := 0
	for i := range pods {
		pod := l.settled(t, name(i))
		if pod.Status.Phase == v1.PodFailed {
			refused++
			continue
		}
		for _, c := range l.observe(t, pod) {
			if len(c.Environment) != c.Asked || !slices.Equal(c.Checkpoint, c.Environment) {
				t.Errorf("pod %s: checkpoint %v, environment %v", pod.Name, c.Checkpoint, c.Environment)
			}
			for _, id := range c.Environment {
				if owner[id] != "" {
					testkit.Violation(t, "%s belongs to %s and to %s", id, owner[id], pod.Name)
				}
				owner[id] = pod.Name
			}
		}
	}
	for i := range pods {
		l.remove(t, name(i))
	}
	if refused == pods {
		t.Errorf("all %d pods were refused", pods)
	}
	t.Logf("%d of %d pods were refused by kubelet while the agent was away", refused, pods)
}

// settled waits until a pod runs, or was refused for want of a device plugin.
func (l *node) settled(t *testing.T, name string) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	testkit.Eventually(t, patience, "pod "+name+" runs or is refused", func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = l.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		away := func(text string) bool { return strings.Contains(pod.Status.Message, text) }
		refused := pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "UnexpectedAdmissionError" &&
			(away("no healthy devices present") || away("rpc failed") || away("error reading from server")) // the last: killed while it answered
		return pod.Status.Phase == v1.PodRunning || refused, fmt.Sprintf("%s %s %s", pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	})
	return pod
}

// untouched checks that the survivors run in the same containers with the same GPUs.
func (l *node) untouched(t *testing.T, when string, survivors []*v1.Pod, first map[string][]gpunode.Observation) {
	t.Helper()
	for _, s := range survivors {
		now, err := l.Client.CoreV1().Pods(s.Namespace).Get(t.Context(), s.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		was, is := s.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]
		if now.UID != s.UID || now.Status.Phase != v1.PodRunning || is.ContainerID != was.ContainerID || is.RestartCount != was.RestartCount {
			t.Errorf("%s: %s was in %s and is %s in %s, %d restarts", when, s.Name, was.ContainerID, now.Status.Phase, is.ContainerID, is.RestartCount)
		}
		after := l.observe(t, now)
		for i, c := range after {
			if !slices.Equal(c.Environment, first[s.Name][i].Environment) {
				t.Errorf("%s: %s had %v and has %v", when, s.Name, first[s.Name][i].Environment, c.Environment)
			}
		}
		for _, d := range differences(after) {
			t.Errorf("%s: %s: %s", when, s.Name, d)
		}
	}
}

// sound reports every promise to which the cluster does not hold, once nothing is pending.
func (l *node) sound(t *testing.T, when string) {
	t.Helper()
	var r *check.Report
	testkit.Eventually(t, patience, when+": nothing is pending", func(ctx context.Context) (bool, string) {
		w, err := check.Read(ctx, l.Client, l.Dynamic, systemNamespace)
		if err != nil {
			return false, err.Error()
		}
		r = check.Examine(w)
		return len(r.Pending) == 0 || len(r.Violations) > 0, fmt.Sprint(r.Pending)
	})
	for _, v := range r.Violations {
		testkit.Violation(t, "%s: %s", when, v)
	}
	if r.Checked.Records < 2 {
		t.Errorf("%s: %d pods were compared with kubelet's record, want the survivors at least", when, r.Checked.Records)
	}
}

// capture keeps what the agent of the old release has written.
func (l *node) capture(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(l.Node.Path("/var/lib/nvtopo/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u, err := l.Dynamic.Resource(v1alpha1.GroupVersionResource).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range u.Items {
		u.Items[i].SetManagedFields(nil)
	}
	data, err := yaml.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "topologies-realnode.yaml"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("captured %s", strings.Join(files, " "))
}
