// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/transcript"
	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	// whatIfVariable and whatIfSeedVariable name in how many states of the cluster what-if is asked,
	// and the seed.
	whatIfVariable, whatIfSeedVariable = "NVTOPO_WHATIF_STATES", "NVTOPO_WHATIF_SEED"
	// whatIfStates is what make test has the time for.
	whatIfStates = 1
	// In each state it is asked of so many single pods, and in two states of so many gangs.
	whatIfPods, whatIfGangs = 10, 5
)

// asker asks a scheduler what would become of pods, as the command nvtopo does.
type asker struct {
	*testEnv
	random *rand.Rand
	http   *http.Client
	url    string
	token  string
	made   int // pods and gangs so far
	ties   int // answers that the lot decided between
}

// newAsker starts the scheduler of a cluster and an account that may ask it.
func newAsker(t *testing.T, l *testEnv, seed int) *asker {
	t.Helper()
	args, url := debugArgs(t)
	l.startScheduler(t, profile{
		name: gangProfile, write: "Binding", plugins: []string{gangPlugin, topologyPlugin, numaPlugin},
		binders: []string{topologyPlugin, "DefaultBinder"}, args: args,
	})
	token := l.checkerAccount(t, "asker", false)
	if _, err := l.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "asker"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nvtopo-what-if"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "asker", Namespace: systemNamespace}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := bearerClient(token)
	client.Timeout = waitLimit
	a := &asker{testEnv: l, random: rand.New(rand.NewPCG(uint64(seed), 18)), http: client, url: url, token: token}
	testkit.Eventually(t, waitLimit, "the scheduler answers what-if", func(context.Context) (bool, string) {
		code, body := a.post(t, nil) // a question without pods
		return code == http.StatusBadRequest, string(body)
	})
	return a
}

// ask asks what would become of the pods.
func (a *asker) ask(t *testing.T, pods ...*v1.Pod) *whatif.Answer {
	t.Helper()
	code, body := a.post(t, manifestOf(t, pods))
	if code != http.StatusOK {
		t.Fatalf("what-if answers %d: %s", code, body)
	}
	out := &whatif.Answer{}
	if err := json.Unmarshal(body, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func (a *asker) post(t *testing.T, asked []byte) (code int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+whatif.Path, bytes.NewReader(asked))
	if err != nil {
		t.Fatal(err)
	}
	return a.do(t, req)
}

// snapshot fetches what what-if would be answered by.
func (a *asker) snapshot(t *testing.T) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+whatif.SnapshotPath, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	code, body := a.do(t, req)
	if code != http.StatusOK {
		t.Fatalf("the snapshot: %d: %s", code, body)
	}
	return body
}

func (a *asker) do(t *testing.T, req *http.Request) (code int, body []byte) {
	t.Helper()
	resp, err := a.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// offline asks the program itself, offline.
func offline(t *testing.T, snapshot []byte, pods ...*v1.Pod) *whatif.Answer {
	t.Helper()
	dir := t.TempDir()
	from, asked := filepath.Join(dir, "snapshot.jsonl"), filepath.Join(dir, "pods.yaml")
	for path, data := range map[string][]byte{from: snapshot, asked: manifestOf(t, pods)} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var words bytes.Buffer
	cmd := exec.CommandContext(t.Context(), testkit.Program(t, "nvtopo-scheduler"), "what-if", "--snapshot", from, "-f", asked)
	cmd.Stderr = &words
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, words.String())
	}
	out := &whatif.Answer{}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func manifestOf(t *testing.T, pods []*v1.Pod) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, pod := range pods {
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s\n", whatif.WithKind(whatif.PodKind, text))
	}
	return out.Bytes()
}

// fate is what what-if says of a pod, and what became of it.
type fate struct {
	Outcome whatif.Outcome
	Node    string
	Devices []whatif.Devices
	NUMA    []int
	Rank    string
	Message string
}

func foretold(p *whatif.Pod) fate {
	f := fate{Outcome: p.Outcome, Node: p.Node, Devices: p.Devices, NUMA: p.NUMANodes, Message: p.Message}
	if p.Rank != nil {
		f.Rank = strconv.Itoa(*p.Rank)
	}
	return f
}

// happened waits until the scheduler has decided about a pod that it was asked of.
func (a *asker) happened(t *testing.T, name string) fate {
	t.Helper()
	var f fate
	testkit.Eventually(t, waitLimit, "pod "+name+" is decided", func(ctx context.Context) (bool, string) {
		pod, err := a.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		f = fate{Message: refusal(pod)}
		switch {
		case pod.Spec.NodeName != "":
			f = fate{Outcome: whatif.Placed, Node: pod.Spec.NodeName, Rank: pod.Annotations[gangrequest.RankKey]}
			choice, err := allocation.Of(pod, pod.Spec.NodeName)
			if err != nil {
				return false, err.Error()
			}
			f.NUMA = choice.NUMANodes
			for _, c := range choice.Containers {
				f.Devices = append(f.Devices, whatif.Devices{Container: c.Name, Resource: c.Resource, IDs: c.GPUs})
			}
			return true, ""
		case pod.Status.NominatedNodeName != "":
			f.Outcome, f.Node = whatif.Preempts, pod.Status.NominatedNodeName
			return true, ""
		}
		f.Outcome = whatif.Waits
		return f.Message != "", fmt.Sprintf("%+v", pod.Status.Conditions)
	})
	return f
}

// settled waits until the scheduler knows of nothing under way and of what has ended.
func (a *asker) settled(t *testing.T) {
	t.Helper()
	testkit.Naps(settleTime)
}

// compare asks about pods, creates them, and compares. It reports whether they were placed.
func (a *asker) compare(t *testing.T, pods ...*v1.Pod) bool {
	t.Helper()
	a.settled(t)
	answer := a.ask(t, pods...)
	var before []byte
	if len(pods) == 1 && answer.Pods[0].Equal > 1 {
		before = a.snapshot(t)
	}
	a.create(t, clones(pods)...)
	placed := true
	for i, pod := range pods {
		want, got := foretold(&answer.Pods[i]), a.happened(t, pod.Name)
		if before != nil && got.Node != want.Node && isEqual(&answer.Pods[i], got.Node) {
			// The lot fell on another of the best. What is it there?
			a.ties++
			want = foretold(&offline(t, before, schedtest.PodFrom(pod).NodeSelector(host(got.Node)).Obj()).Pods[0])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pod %s %v (-foretold +happened):\n%s\ncandidates %+v", pod.Name, pod.Annotations, diff, answer.Pods[i].Candidates)
		}
		placed = placed && got.Outcome == whatif.Placed
	}
	return placed
}

func clones(pods []*v1.Pod) []*v1.Pod {
	out := make([]*v1.Pod, len(pods))
	for i := range pods {
		out[i] = pods[i].DeepCopy()
	}
	return out
}

func isEqual(p *whatif.Pod, node string) bool {
	return slices.ContainsFunc(p.Candidates, func(c whatif.Candidate) bool { return c.Node == node && c.Score == p.Candidates[0].Score })
}

// single is a random pod of no gang.
func (a *asker) single() *v1.Pod {
	a.made++
	n := notes{}
	change := func(*v1.Pod) {}
	switch a.random.IntN(8) {
	case 0:
		n[podrequest.TopologyPolicyKey] = "single-numa-node"
	case 1:
		n[podrequest.MinLinkKey] = "NV1"
	case 2:
		n[podrequest.NUMAAffinityKey] = "required"
	case 3:
		n[podrequest.MessageSizeKey] = "64k"
	case 4:
		machines := plannedMachines()
		change = rather(1, productLabel, machines[a.random.IntN(len(machines))])
	}
	pod := gpuPod(fmt.Sprintf("p%d", a.made), gangProfile, []int{1, 1, 2, 2, 3, 4, 5, 8}[a.random.IntN(8)]).Annotations(n).With(change).Obj()
	if a.random.IntN(4) == 0 {
		pod.Spec.Containers = append(pod.Spec.Containers, container("second", 1))
	}
	return pod
}

// gang is a random gang.
func (a *asker) gang() []*v1.Pod {
	a.made++
	name, size := fmt.Sprintf("g%d", a.made), 2*(1+a.random.IntN(3))
	n := notes{gangrequest.GangKey: name, gangrequest.GangSizeKey: strconv.Itoa(size)}
	switch a.random.IntN(4) {
	case 0:
		n[gangrequest.RequiredKey] = "rack"
	case 1:
		n[gangrequest.StrategyKey] = "compute-heavy"
	}
	gpus := []int{1, 2, 2, 4, 8}[a.random.IntN(5)]
	var out []*v1.Pod
	for i := range size {
		out = append(out, gpuPod(fmt.Sprintf("%s-%d", name, i), gangProfile, gpus).Annotations(maps.Clone(n)).Obj())
	}
	return out
}

// newState makes the cluster another one: no node takes pods but some, and these are full to some
// degree.
func (a *asker) newState(t *testing.T, nodes []string) {
	t.Helper()
	pods, err := a.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		a.end(t, pods.Items[i].Name)
	}
	closed := a.random.IntN(len(nodes) / 2)
	for i, n := range a.random.Perm(len(nodes)) {
		patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, i < closed)
		if _, err := a.client.CoreV1().Nodes().Patch(t.Context(), nodes[n], types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Naps(settleTime)
	for range 2 + a.random.IntN(2*len(nodes)) {
		a.made++
		pod := gpuPod(fmt.Sprintf("f%d", a.made), gangProfile, []int{1, 1, 2, 3, 4}[a.random.IntN(5)]).Obj()
		a.create(t, pod)
		if a.happened(t, pod.Name).Outcome != whatif.Placed {
			a.end(t, pod.Name)
		}
	}
}

func (a *asker) end(t *testing.T, name string) {
	t.Helper()
	if err := a.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestWhatIfParity: the answer of what-if is what happens. It asks about random pods and gangs in
// random states of a cluster, then creates them. Each has to be on the node, with the devices, NUMA
// nodes and rank that were foretold, or be refused with the words that were. Where nodes are equal
// to the scheduler, which then draws lots, the pod has to be on one of them, with what was foretold
// for that one.
func TestWhatIfParity(t *testing.T) {
	states, seed := numberOf(t, whatIfVariable, whatIfStates), numberOf(t, whatIfSeedVariable, 1)
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	var nodes []string
	var specs []devcluster.NodeSpec
	machines := plannedMachines()
	for i := range 16 {
		spec := devcluster.NodeSpec{
			Name: fmt.Sprintf("node-%02d", i), Machine: machines[i%len(machines)],
			Labels: map[string]string{
				spineLabel: fmt.Sprintf("spine-%d", i/8), rackLabel: fmt.Sprintf("rack-%d", i/4), productLabel: machines[i%len(machines)],
			},
		}
		if _, err := l.AddNode(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		nodes, specs = append(nodes, spec.Name), append(specs, spec)
	}
	l.publish(t, devcluster.ExporterOptions{}, specs...)
	a := newAsker(t, l, seed)
	pods, gangs, placed := 0, 0, 0
	for state := range states {
		a.newState(t, nodes)
		for range whatIfPods {
			pods++
			if a.compare(t, a.single()) {
				placed++
			} else {
				a.end(t, fmt.Sprintf("p%d", a.made))
			}
		}
		for range whatIfGangs/2 + state%2*(whatIfGangs%2) {
			gangs++
			gang := a.gang()
			if a.compare(t, gang...) {
				placed++
				continue
			}
			for _, pod := range gang {
				a.end(t, pod.Name)
			}
		}
	}
	t.Logf("%v: %d pods and %d gangs in %d states, %d of them placed, %d by lot on another of the best nodes", machines, pods, gangs, states, placed, a.ties)
}

// TestWhatIfRefusals: bad questions are named, and strangers get no answer.
func TestWhatIfRefusals(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.node(t, "n1", "dgx1-v100")
	a := newAsker(t, l, 1)
	for name, tc := range map[string]struct {
		asked, want string
	}{
		"no pod":            {"", "there is no pod"},
		"an unknown field":  {"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containerz: []}\n", `unknown field "spec.containerz"`},
		"an unknown kind":   {"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: x}\n", `kind "DaemonSet"`},
		"another scheduler": {"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {schedulerName: other, containers: [{name: c, image: i}]}\n", `spec.schedulerName "other"`},
		"an unknown class":  {"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {priorityClassName: top, containers: [{name: c, image: i}]}\n", `spec.priorityClassName "top"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, body := a.post(t, []byte(tc.asked))
			if code != http.StatusBadRequest || !strings.Contains(string(body), tc.want) {
				t.Errorf("%d %s, want 400 with %q", code, body, tc.want)
			}
		})
	}
	t.Run("a reader of the state may not ask", func(t *testing.T) {
		reader := *a
		reader.http = bearerClient(l.checkerAccount(t, "reader", true))
		if code, body := reader.post(t, nil); code != http.StatusForbidden {
			t.Errorf("%d %s, want 403", code, body)
		}
	})
}

// TestWhatIfVictims: what-if names victims. A pod that others have to go for is nominated where
// what-if said, and they are those that it named. what-if evicts nobody.
func TestWhatIfVictims(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	for i := range 2 {
		l.node(t, fmt.Sprintf("n%d", i), "dgx1-v100")
	}
	a := newAsker(t, l, 1)
	l.priorities(t, map[string]int32{"middle": 1000})
	// Victims on one of two equal nodes would be by lot.
	for i := range 8 {
		pod := gpuPod(fmt.Sprintf("low-%d", i), gangProfile, 2).NodeSelector(host(fmt.Sprintf("n%d", i%2))).Obj()
		if i%2 == 0 {
			pod.Spec.PriorityClassName = "middle"
		}
		a.create(t, pod)
		a.bound(t, pod.Name)
	}
	a.settled(t)
	high := gpuPod("high", gangProfile, 4).Obj()
	high.Spec.PriorityClassName = "system-cluster-critical"
	answer := a.ask(t, high)
	if p := &answer.Pods[0]; p.Outcome != whatif.Preempts || len(answer.Victims) == 0 {
		t.Fatalf("answer %+v", answer)
	}
	for i := range 8 {
		if pod := a.get(t, fmt.Sprintf("low-%d", i)); pod.DeletionTimestamp != nil {
			t.Errorf("what-if evicted %s", pod.Name)
		}
	}
	a.create(t, high)
	pod := a.bound(t, "high")
	if pod.Spec.NodeName != answer.Pods[0].Node {
		t.Errorf("it is on %s, foretold for %s", pod.Spec.NodeName, answer.Pods[0].Node)
	}
	left, err := a.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var gone []string
	for i := range 8 {
		name := fmt.Sprintf("low-%d", i)
		if !slices.ContainsFunc(left.Items, func(p v1.Pod) bool { return p.Name == name }) {
			gone = append(gone, metav1.NamespaceDefault+"/"+name)
		}
	}
	if diff := cmp.Diff(answer.Victims, gone); diff != "" {
		t.Errorf("victims (-foretold +gone):\n%s", diff)
	}
}

// TestWhatIfCommand: the command asks the scheduler that leads, with pods that the API server has
// admitted, and says the same by a saved snapshot, with names and without.
func TestWhatIfCommand(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	for i := range 2 {
		l.node(t, fmt.Sprintf("n%d", i), "dgx1-v100")
	}
	a := newAsker(t, l, 1)
	a.create(t, gpuPod("first", gangProfile, 3).NodeSelector(host("n1")).Obj())
	a.bound(t, "first")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := devcluster.WriteKubeconfigOf(l.RESTConfig(), kubeconfig); err != nil {
		t.Fatal(err)
	}
	const job = `
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {annotations: {nvtopo.dev/gang: train, nvtopo.dev/gang-size: "2"}}
    spec:
      schedulerName: ` + gangProfile + `
      restartPolicy: Never
      containers: [{name: main, image: example.com/app:1, resources: {limits: {nvidia.com/gpu: 4}}}]
`
	const singlePod = `
apiVersion: v1
kind: Pod
metadata: {name: single}
spec:
  schedulerName: ` + gangProfile + `
  containers: [{name: main, image: example.com/app:1, resources: {limits: {nvidia.com/gpu: 2}}}]
`
	asked := file("job.yaml", job)
	access := []string{"--kubeconfig", kubeconfig, "--insecure-skip-tls-verify", "--token-file", file("token", a.token)}
	scheduler := append([]string{"--scheduler", a.url}, access...)
	run := func(args ...string) string {
		t.Helper()
		out, err := runNvtopo(t.Context(), args...)
		if err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
		return out
	}
	fates := func(args ...string) (out []fate) {
		t.Helper()
		answer := &whatif.Answer{}
		if err := json.Unmarshal([]byte(run(append([]string{"what-if", "-f", asked, "-o", "json"}, args...)...)), answer); err != nil {
			t.Fatal(err)
		}
		for i := range answer.Pods {
			out = append(out, foretold(&answer.Pods[i]))
		}
		return out
	}
	live := fates(scheduler...)
	if len(live) != 2 || live[0].Outcome != whatif.Placed || live[1].Outcome != whatif.Placed {
		t.Fatalf("asked of the scheduler: %+v", live)
	}
	program := []string{"--program", testkit.Program(t, "nvtopo-scheduler")}
	saved := filepath.Join(dir, "saved.jsonl")
	run(append([]string{"snapshot", "save", "-o", saved}, scheduler...)...)
	if diff := cmp.Diff(live, fates(append(program, "--snapshot", saved)...)); diff != "" {
		t.Errorf("by the snapshot (-live +snapshot):\n%s", diff)
	}
	found := []string{"--kubeconfig", kubeconfig}
	testkit.Eventually(t, waitLimit, "the scheduler is found without flags", func(ctx context.Context) (bool, string) {
		out, err := runNvtopo(ctx, append([]string{"what-if", "-f", asked}, found...)...)
		return err == nil, fmt.Sprint(out, err)
	})
	if diff := cmp.Diff(live, fates(found...)); diff != "" {
		t.Errorf("found without flags (-with flags +without):\n%s", diff)
	}
	text := run(append([]string{"what-if", "-f", asked}, scheduler...)...)
	for _, want := range []string{"default/train-0  Placed", "default/train-0, default/train-1 by the plan of gang default/train\n  gang default/train: "} {
		if !strings.Contains(text, want) {
			t.Errorf("for people, want %q:\n%s", want, text)
		}
	}
	if _, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "train-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what-if created the pod: %v", err)
	}

	shown := transcript.New("what-if")
	shown.Hide(regexp.QuoteMeta(dir)+"/", "")
	shown.Say("Two nodes of 8 GPUs, 3 of which pod first holds on n1. Which nodes would a job of two pods get?")
	shown.File("job.yaml", job)
	shown.RunWith(t, found, "what-if", "-f", asked)
	larger := file("larger.yaml", strings.Replace(job, "nvidia.com/gpu: 4", "nvidia.com/gpu: 8", 1))
	single := file("pod.yaml", singlePod)
	shown.Say("A single pod goes to the node where it costs those who come later least:")
	shown.File("pod.yaml", singlePod)
	shown.RunWith(t, found, "what-if", "-f", single)
	shown.Say("larger.yaml asks 8 GPUs for each pod.")
	shown.RunWith(t, found, "what-if", "-f", larger)
	shown.Say("What the scheduler decides by, saved and asked without it:")
	shown.RunWith(t, found, "snapshot", "save", "-o", saved)
	shown.RunWith(t, program, "what-if", "-f", asked, "--snapshot", saved)
	shown.Say("No pod was created:")
	shown.RunWith(t, found, "topology", "-g", "node,pod")
	shown.Compare(t)
}
