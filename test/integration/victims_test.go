// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// tenant is a pod that runs on a node before anybody preempts.
type tenant struct {
	name     string
	class    string // priority class
	gpus     []int
	node     int // of the case's nodes
	unknown  int // GPUs that another scheduler gave it, nobody knows which
	cpu      string
	guarded  bool  // a disruption budget allows none of the guarded pods to go
	grace    int64 // seconds; no kubelet ends the pod before the test does
	lateStop bool  // it started later than the others
	told     bool  // to go, before anybody preempts
}

// victimCase is one line of the table.
type victimCase struct {
	name     string
	machines []string
	tenants  []tenant
	pods     []*v1.Pod // that preempt, created together
	want     []string  // tenants evicted
	wantNode int
	wantGPUs []nvtopo.Mask // any of them, together for all pods; none: refused
	// before runs when the tenants are there, if not nil.
	before func(t *testing.T, l *testEnv, nodes []string, profile string)
	// midway runs once the victims are told to go, if not nil.
	midway func(t *testing.T, l *testEnv, nodes []string)
}

// bind gives a pod a node, and GPUs if any are named, as the scheduler's Binding does.
func (e *testEnv) bind(t *testing.T, pod *v1.Pod, node string, gpus []int) {
	t.Helper()
	b := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}
	if len(gpus) > 0 {
		a := allocation.Allocation{Version: allocation.Version, Node: node, PodUID: pod.UID, Assumed: time.Now().UTC(), Enforced: true}
		c := allocation.Container{Name: "main", Resource: string(gpuResource)}
		for _, i := range gpus {
			c.GPUs = append(c.GPUs, e.graphs[node].GPUs[i].UUID)
			c.NUMANodes = append(c.NUMANodes, e.graphs[node].GPUs[i].NUMANode)
		}
		slices.Sort(c.NUMANodes)
		c.NUMANodes = slices.Compact(c.NUMANodes)
		a.NUMANodes, a.Containers = c.NUMANodes, []allocation.Container{c}
		text, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b.Annotations = notes{allocation.Key: text}
	}
	if err := e.client.CoreV1().Pods(pod.Namespace).Bind(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// run makes a pod look as if kubelet ran it since the given time.
func (e *testEnv) run(t *testing.T, name string, since time.Time) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod := e.get(t, name)
		pod.Status.Phase, pod.Status.StartTime = v1.PodRunning, &metav1.Time{Time: since}
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
		_, err := e.client.CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// settle makes a case's nodes and puts its tenants on them.
func (e *testEnv) settle(t *testing.T, tc *victimCase, prefix string) (nodes []string) {
	t.Helper()
	for i, m := range tc.machines {
		nodes = append(nodes, fmt.Sprintf("%s-n%d", prefix, i))
		e.node(t, nodes[i], m)
		node, err := e.client.CoreV1().Nodes().Get(t.Context(), nodes[i], metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node.Labels["case"] = prefix
		if _, err := e.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	guarded := 0
	for i := range tc.tenants {
		x := &tc.tenants[i]
		// No scheduler of this name exists: the test binds the pod itself.
		holder := gpuPod(prefix+"-"+x.name, "nobody", max(len(x.gpus), x.unknown)).PriorityClass(x.class)
		if x.cpu != "" {
			holder.CPU(x.cpu)
		}
		if x.guarded {
			holder.Label("guarded", prefix)
			guarded++
		}
		pod := holder.TerminationGracePeriodSeconds(x.grace).Obj()
		made, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		e.bind(t, made, nodes[x.node], x.gpus)
		since := time.Now().Add(-time.Hour)
		if x.lateStop {
			since = since.Add(30 * time.Minute)
		}
		e.run(t, made.Name, since)
	}
	if guarded > 0 {
		e.guard(t, prefix, guarded)
	}
	for _, x := range tc.tenants {
		if x.told {
			e.remove(t, prefix+"-"+x.name) // which stays until its grace period is over
		}
	}
	testkit.Naps(2 * settleTime)
	return nodes
}

// guard makes a disruption budget that allows no guarded pod to go, and waits until
// the disruption controller has said so.
func (e *testEnv) guard(t *testing.T, prefix string, pods int) {
	t.Helper()
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: prefix},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &intstr.IntOrString{IntVal: int32(pods)},
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"guarded": prefix}},
		},
	}
	pdbs := e.client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault)
	if _, err := pdbs.Create(t.Context(), pdb, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, waitLimit, "the disruption controller counts the guarded pods", func(ctx context.Context) (bool, string) {
		got, err := pdbs.Get(ctx, prefix, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return got.Status.ObservedGeneration > 0 && got.Status.CurrentHealthy == int32(pods), fmt.Sprintf("%+v", got.Status)
	})
}

// evicted lists the tenants of a case that are gone or told to go.
func (e *testEnv) evicted(t *testing.T, tc *victimCase, prefix string) (out []string) {
	t.Helper()
	for i := range tc.tenants {
		pod, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), prefix+"-"+tc.tenants[i].name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if err != nil || pod.DeletionTimestamp != nil {
			out = append(out, tc.tenants[i].name)
		}
	}
	return out
}

// play lets a case's pods come and checks who went for them, and what they got.
func (e *testEnv) play(t *testing.T, tc *victimCase, prefix string) {
	t.Helper()
	nodes := e.settle(t, tc, prefix)
	if tc.before != nil {
		tc.before(t, e, nodes, tc.pods[0].Spec.SchedulerName)
	}
	start := time.Now()
	for i, pod := range tc.pods {
		pod.Name = fmt.Sprintf("%s-p%d", prefix, i)
		pod.Spec.NodeSelector = map[string]string{"case": prefix}
	}
	e.create(t, tc.pods...)
	if tc.midway != nil {
		testkit.Eventually(t, waitLimit, "the victims are told to go", func(context.Context) (bool, string) {
			got := e.evicted(t, tc, prefix)
			return len(got) >= len(tc.want), strings.Join(got, ", ")
		})
		tc.midway(t, e, nodes)
	}
	var set nvtopo.Mask
	node := ""
	for _, pod := range tc.pods {
		if len(tc.wantGPUs) == 0 {
			e.refused(t, pod.Name)
			time.Sleep(time.Second) // nobody is evicted a little later either
			continue
		}
		bound := e.bound(t, pod.Name)
		node = bound.Spec.NodeName
		set |= choiceOf(t, bound, e.graphs[node]).set
	}
	took := time.Since(start)
	got := e.evicted(t, tc, prefix)
	t.Logf("%-34s expected: %-20s evicted: %-20s node %-3s GPUs %v (%d ms)",
		tc.name, strings.Join(tc.want, " "), strings.Join(got, " "), strings.TrimPrefix(node, prefix+"-"), set.Positions(), took.Milliseconds())
	if !slices.Equal(got, tc.want) {
		t.Errorf("evicted %v, want %v", got, tc.want)
	}
	if len(tc.wantGPUs) > 0 && (node != nodes[tc.wantNode] || !slices.Contains(tc.wantGPUs, set)) {
		t.Errorf("GPUs %v of %s, want one of %v of %s", set.Positions(), node, tc.wantGPUs, nodes[tc.wantNode])
	}
}

const bridged4, bridged8, dgx1 = "a100-pcie-4-bridged", "a6000-8-bridged", "dgx1-v100"

// singles are tenants with one GPU each, from the first on.
func singles(class string, gpus ...int) (out []tenant) {
	for _, i := range gpus {
		out = append(out, tenant{name: fmt.Sprintf("s%d", i), class: class, gpus: []int{i}})
	}
	return out
}

func victimCases() []victimCase {
	nvlink := notes{podrequest.MinLinkKey: "NVLINK"}
	// wants is a pod that preempts.
	wants := func(gpus int, annotations notes) *schedtest.PodWrapper {
		return gpuPod("", preBindProfile, gpus).Annotations(annotations).PriorityClass("high")
	}
	initial := wants(1, nvlink).Obj()
	initial.Spec.InitContainers = []v1.Container{container("warm-up", 2)}
	return []victimCase{
		{
			name: "a linked set across victims", machines: []string{bridged4},
			tenants: append(singles("low", 0, 2, 3), tenant{name: "s1", class: "middle", gpus: []int{1}}),
			pods:    []*v1.Pod{wants(2, nvlink).Obj()},
			want:    []string{"s2", "s3"}, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(2, 3)},
		},
		{
			name: "one big victim, not four small", machines: []string{dgx1},
			tenants: append(singles("low", 0, 1, 2, 3), tenant{name: "big", class: "low", gpus: []int{4, 5, 6, 7}}),
			pods:    []*v1.Pod{wants(4, notes{podrequest.TopologyPolicyKey: "single-numa-node"}).Obj()},
			want:    []string{"big"}, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(4, 5, 6, 7)},
		},
		{
			name: "a disruption budget", machines: []string{bridged4, bridged4},
			tenants: []tenant{
				{name: "guarded0", class: "low", gpus: []int{0, 1}, guarded: true},
				{name: "guarded1", class: "low", gpus: []int{2, 3}, guarded: true},
				{name: "m0", node: 1, class: "middle", gpus: []int{0}},
				{name: "m1", node: 1, class: "middle", gpus: []int{1}},
				{name: "guarded2", node: 1, class: "low", gpus: []int{2, 3}, guarded: true},
			},
			pods: []*v1.Pod{wants(2, nvlink).Obj()},
			want: []string{"m0", "m1"}, wantNode: 1, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(0, 1)},
		},
		{
			name: "a budget where all are guarded", machines: []string{bridged4},
			tenants: []tenant{
				{name: "old", class: "low", gpus: []int{0, 1}, guarded: true},
				{name: "young", class: "low", gpus: []int{2, 3}, guarded: true, lateStop: true},
			},
			pods: []*v1.Pod{wants(2, nvlink).Obj()},
			want: []string{"young"}, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(2, 3)},
		},
		{
			name: "reprieve", machines: []string{bridged4},
			tenants: []tenant{
				{name: "holder", class: "low", gpus: []int{0, 1}, cpu: "8"},
				{name: "other", class: "middle", gpus: []int{2, 3}, cpu: "8"},
				{name: "builder", class: "low", cpu: "60"},
				{name: "web", class: "low", cpu: "1"},
				{name: "cache", class: "low", cpu: "1"},
			},
			pods: []*v1.Pod{wants(2, nvlink).CPU("40").Obj()},
			want: []string{"holder", "builder"}, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(0, 1)},
		},
		{
			name: "nominated", machines: []string{bridged8},
			tenants: append(singles("middle", 2, 4, 6), tenant{name: "big", class: "low", gpus: []int{0, 1}, grace: 600}),
			pods:    []*v1.Pod{wants(2, nvlink).Obj()},
			want:    []string{"big"}, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(0, 1)},
			midway: func(t *testing.T, l *testEnv, nodes []string) {
				t.Helper()
				// Meanwhile a pod of less priority comes: it gets what is not promised.
				other := gpuPod(nodes[0]+"-other", preBindProfile, 1).PriorityClass("low").NodeSelector(host(nodes[0])).Obj()
				l.create(t, other)
				if c := choiceOf(t, l.bound(t, other.Name), l.graphs[nodes[0]]); c.set&nvtopo.MaskOf(0, 1) != 0 {
					t.Errorf("the pod of less priority has GPUs %v, 0 and 1 are promised", c.set.Positions())
				}
				force := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
				big := strings.TrimSuffix(nodes[0], "-n0") + "-big"
				if err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), big, force); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "impossible", machines: []string{"l40s-8", bridged4},
			tenants: append([]tenant{{name: "low", class: "low", gpus: []int{0, 1, 2, 3, 4, 5, 6, 7}}},
				tenant{name: "important", node: 1, class: "high", gpus: []int{0}}, tenant{name: "grave", node: 1, class: "high", gpus: []int{2}},
				tenant{name: "small", node: 1, class: "low", gpus: []int{1}}, tenant{name: "tiny", node: 1, class: "low", gpus: []int{3}}),
			pods: []*v1.Pod{wants(2, nvlink).Obj()},
		},
		{
			name: "init containers", machines: []string{bridged4},
			tenants: []tenant{
				{name: "s0", class: "low", gpus: []int{0}},
				{name: "s1", class: "middle", gpus: []int{1}},
				{name: "pair", class: "low", gpus: []int{2, 3}},
			},
			pods: []*v1.Pod{initial},
			want: []string{"pair"}, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(2, 3)},
		},
		{
			name: "a foreign pod", machines: []string{bridged4},
			tenants: []tenant{
				{name: "stranger", class: "low", unknown: 1},
				{name: "known", class: "middle", gpus: []int{0}},
			},
			pods: []*v1.Pod{wants(2, nvlink).Obj()},
			want: []string{"stranger"}, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(2, 3)},
		},
		{
			name: "a whole node", machines: []string{dgx1},
			tenants: append(singles("low", 0, 1), tenant{name: "pair", class: "middle", gpus: []int{2, 3}},
				tenant{name: "three", class: "low", gpus: []int{4, 5, 6}}, tenant{name: "web", class: "low", cpu: "4"}),
			pods: []*v1.Pod{wants(8, nil).Obj()},
			want: []string{"s0", "s1", "pair", "three"}, wantGPUs: []nvtopo.Mask{nvtopo.FullMask(8)},
		},
		{
			name: "across NUMA nodes", machines: []string{dgx1},
			tenants: []tenant{
				{name: "left", class: "low", gpus: []int{0, 1}},
				{name: "right", class: "low", gpus: []int{2}},
				{name: "astride", class: "low", gpus: []int{3, 4, 5}},
				{name: "lord", class: "high", gpus: []int{6}},
			},
			pods: []*v1.Pod{wants(4, notes{podrequest.TopologyPolicyKey: "single-numa-node"}).Obj()},
			want: []string{"left", "right", "astride"}, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(0, 1, 2, 3)},
		},
		{
			name: "min-link", machines: []string{dgx1},
			// 0 and 1 matter least, but are joined by one NVLink. 0 and 3 have two.
			tenants: append(singles("low", 0, 1), append(singles("high", 2, 4, 5, 6, 7), tenant{name: "s3", class: "middle", gpus: []int{3}})...),
			pods:    []*v1.Pod{wants(2, notes{podrequest.MinLinkKey: "NV2"}).Obj()},
			want:    []string{"s0", "s3"}, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(0, 3)},
		},
		{
			name: "two preemptors at once", machines: []string{bridged8},
			tenants: []tenant{
				{name: "big", class: "low", gpus: []int{0, 1, 2, 3}},
				{name: "s4", class: "middle", gpus: []int{4}},
				{name: "s5", class: "middle", gpus: []int{5}},
				{name: "s6", class: "middle", gpus: []int{6}},
				{name: "s7", class: "middle", gpus: []int{7}},
			},
			pods: []*v1.Pod{wants(2, nvlink).Obj(), wants(2, nvlink).Obj()},
			want: []string{"big"}, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(0, 1, 2, 3)},
		},
		{
			name: "another's victim", machines: []string{bridged4},
			tenants: []tenant{{name: "whole", class: "middle", gpus: []int{0, 1, 2, 3}}},
			pods:    []*v1.Pod{gpuPod("", preBindProfile, 2).Annotations(nvlink).PriorityClass("low").Obj()},
			before:  failedEviction,
		},
		{
			name: "a grace period of hours", machines: []string{bridged4, bridged4},
			tenants: []tenant{
				{name: "slow", class: "low", gpus: []int{0, 1, 2, 3}, grace: 3 * 3600, told: true},
				{name: "other", node: 1, class: "middle", gpus: []int{0, 1}},
				{name: "important", node: 1, class: "high", gpus: []int{2, 3}},
			},
			pods: []*v1.Pod{wants(2, nvlink).Obj()},
			want: []string{"slow", "other"}, wantNode: 1, wantGPUs: []nvtopo.Mask{nvtopo.MaskOf(0, 1)},
		},
		{
			name: "kubelet releases one by one", machines: []string{bridged4},
			tenants: []tenant{{name: "first", class: "low", gpus: []int{0, 1}}, {name: "second", class: "low", gpus: []int{2, 3}}},
			pods:    []*v1.Pod{wants(4, nil).Obj()},
			want:    []string{"first", "second"}, wantGPUs: []nvtopo.Mask{nvtopo.FullMask(4)},
			before: func(t *testing.T, l *testEnv, nodes []string, _ string) {
				t.Helper()
				prefix := strings.TrimSuffix(nodes[0], "-n0")
				l.recordGPUs(t, nodes[0], prefix+"-first", prefix+"-second")
				l.remove(t, prefix+"-first", prefix+"-second")
			},
			midway: releasesOneByOne,
		},
	}
}

// TestPreemption plays the table: who is evicted for pods that ask for links, on a
// real API server, with the disruption controller.
func TestPreemption(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{Controllers: true})
	l.install(t)
	l.priorities(t, map[string]int32{"low": 10, "middle": 100, "high": 1000})
	l.startScheduler(t, schedulingProfiles()...)
	for _, p := range bothWrites {
		t.Run(p, func(t *testing.T) {
			for i, tc := range victimCases() {
				t.Run(tc.name, func(t *testing.T) {
					for _, pod := range tc.pods {
						pod.Spec.SchedulerName = p
					}
					l.play(t, &tc, fmt.Sprintf("%s%d", strings.ToLower(p), i))
				})
			}
		})
	}
}
