// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
)

// wish returns gpuPod without a name, for probes.
func wish(profile string, gpus int, change func(*v1.Pod)) *schedtest.PodWrapper {
	pod := gpuPod("", profile, gpus)
	if change != nil {
		pod.With(change)
	}
	return pod
}

const knockOutPort = 8470

func withPort(pod *v1.Pod) {
	pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: knockOutPort, HostPort: knockOutPort}}
}

// apart keeps a pod off nodes with pods of an app.
func apart(app string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: v1.LabelHostname,
			}},
		}}
	}
}

func ofApp(app string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Labels = map[string]string{"app": app} }
}

// daemonOf pins a pod to a node as the DaemonSet controller does.
func daemonOf(node string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
			}}},
		}}
		pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	}
}

// knockOut is one way in which no good node is left for a pod.
type knockOut struct {
	shut func(t *testing.T, node string) // closes a good node; nil when the pod itself does
	open func(t *testing.T, node string) // undoes all but pods
	pod  func(*v1.Pod)                   // sets the pod's special fields
	want string                          // the node; any poor one if empty
	// recovers marks a cause that the list cannot know: the pod's first attempt fails.
	recovers bool
}

// knockOuts returns all cases of the test. Fillers are low-priority pods, the pod has high priority, so
// that evicting them would help it.
func (a *across) knockOuts() map[string]knockOut {
	filler := func(change func(*v1.Pod)) func(*testing.T, string) {
		return func(t *testing.T, node string) {
			t.Helper()
			pod := wish("", 0, change).PriorityClass("low").Obj()
			pod.Name = a.freshName("filler")
			a.placed(t, node, pod)
		}
	}
	edit := func(change func(*v1.Node)) func(*testing.T, string) {
		return func(t *testing.T, node string) { t.Helper(); a.editNode(t, node, change) }
	}
	return map[string]knockOut{
		"by a taint": {
			shut: edit(func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "closed", Effect: v1.TaintEffectNoSchedule}} }),
			open: edit(func(n *v1.Node) { n.Spec.Taints = nil }),
		},
		"by a cordon": {
			shut: edit(func(n *v1.Node) { n.Spec.Unschedulable = true }),
			open: edit(func(n *v1.Node) { n.Spec.Unschedulable = false }),
		},
		"by its node selector": {pod: func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"kind": "poor"} }},
		"by its node affinity": {pod: func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{
					MatchExpressions: []v1.NodeSelectorRequirement{{Key: "kind", Operator: v1.NodeSelectorOpNotIn, Values: []string{"good"}}},
				}},
			}}}
		}},
		"by pods that fill the CPUs": {
			// Of 96 CPUs one is left, the pod needs two.
			shut: filler(func(p *v1.Pod) { *p = *schedtest.PodFrom(p).CPU("95").Memory("1Gi").Obj() }),
		},
		"by the name of its node, as a DaemonSet's pod": {pod: daemonOf("poor-1"), want: "poor-1"},
		"by pods that have its port":                    {shut: filler(withPort), pod: withPort, recovers: true},
		"by pods it must not be beside":                 {shut: filler(ofApp("noisy")), pod: apart("noisy"), recovers: true},
		"by pods that must not be beside it":            {shut: filler(apart("new")), pod: ofApp("new"), recovers: true},
	}
}

func (e *testEnv) editNode(t *testing.T, name string, change func(*v1.Node)) {
	t.Helper()
	node, err := e.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(node)
	if _, err := e.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testKnockOuts closes every node with the pod's best choices. First the same pod shows, with the nodes
// open, that these are the listed ones.
func (a *across) testKnockOuts(t *testing.T) {
	for name, tc := range a.knockOuts() {
		for _, p := range bothWrites {
			t.Run(name+" "+p, func(t *testing.T) {
				a.awaitOpen(t, a.good, func() *v1.Pod { return wish(p, 2, nil).PriorityClass("low").Obj() })
				control := wish(p, 2, nil).Obj()
				control.Name = a.freshName("control")
				got, delta := a.wantUndisturbed(t, control)
				if !slices.Contains(a.good, got.Spec.NodeName) || delta.listed == 0 {
					t.Fatalf("with every node open the pod is on %s, after %.0f lists", got.Spec.NodeName, delta.listed)
				}
				a.drop(t, control.Name)
				if tc.shut != nil {
					for _, node := range a.good {
						tc.shut(t, node)
					}
					a.awaitShut(t, a.good, func() *v1.Pod { return wish(p, 2, tc.pod).PriorityClass("low").Obj() })
				}

				pod := wish(p, 2, tc.pod).PriorityClass("high").Obj()
				pod.Name = a.freshName("knocked")
				got, delta = a.wantUndisturbed(t, pod)
				if node := got.Spec.NodeName; !slices.Contains(a.poor, node) || tc.want != "" && node != tc.want {
					t.Errorf("the pod is on node %s, want %s of %v", node, tc.want, a.poor)
				}
				choiceOf(t, got, a.graphs[got.Spec.NodeName])
				if (delta.recovered > 0) != tc.recovers {
					t.Errorf("%.0f lists were recovered from, want some: %t", delta.recovered, tc.recovers)
				}

				a.dropAll(t)
				if tc.open != nil {
					for _, node := range a.good {
						tc.open(t, node)
					}
				}
			})
		}
	}
	a.wantPreemptedEvents(t, 0)
}

// wantPreemptedEvents counts the scheduler's events about victims.
func (e *testEnv) wantPreemptedEvents(t *testing.T, want int) {
	t.Helper()
	events, err := e.client.EventsV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Items) == 0 {
		t.Error("the scheduler wrote no event at all")
	}
	got := 0
	for i := range events.Items {
		if events.Items[i].Reason == "Preempted" {
			got++
		}
	}
	if got != want {
		t.Errorf("%d pods were told that they are preempted, want %d", got, want)
	}
}
