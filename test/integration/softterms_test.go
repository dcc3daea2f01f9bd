// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	productLabel = "nvidia.com/gpu.product"
	appLabel     = "example.com/app"
	slowZone     = "slow"
)

// TestSoftTerms: each line of the table of docs/objective.md, by a scheduler as shipped. Two H200 and
// four L40S machines, each H200 in a zone of its own; pods of two take the H200 for their links, and
// single GPUs leave these alone.
func TestSoftTerms(t *testing.T) {
	e := newTestEnv(t, devcluster.Config{})
	e.install(t)
	nodes := []devcluster.NodeSpec{
		{Name: "fast-0", Machine: "hgx-h200", Labels: map[string]string{productLabel: "H200", v1.LabelTopologyZone: "a", v1.LabelInstanceTypeStable: "first"}},
		{Name: "fast-1", Machine: "hgx-h200", Labels: map[string]string{productLabel: "H200", v1.LabelTopologyZone: "b", v1.LabelInstanceTypeStable: "second"}},
	}
	for i := range 4 {
		nodes = append(nodes, devcluster.NodeSpec{Name: fmt.Sprintf("slow-%d", i), Machine: "l40s-8", Labels: map[string]string{productLabel: "L40S", v1.LabelTopologyZone: slowZone}})
	}
	for _, spec := range nodes {
		if _, err := e.AddNode(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	e.publish(t, devcluster.ExporterOptions{}, nodes...)
	if _, err := e.StartScheduler(t.Context(), devcluster.SchedulerOptions{
		Binary: testkit.Program(t, "nvtopo-scheduler"), Config: withKubeconfig(t, manifests.SchedulerConfigPath), ServiceAccount: e.schedulerAccount,
	}); err != nil {
		t.Fatal(err)
	}
	x := &softTerms{testEnv: e}
	for _, on := range []string{"fast-0", "fast-1", "slow-0"} { // what pods may wish to be near
		x.at(t, on, 1, map[string]string{appLabel: "on-" + on})
	}
	x.at(t, "fast-0", 1, nil) // is begun with two
	const (
		links    = "faster links"
		gangs    = "faster links for a gang"
		begun    = "machines of the same links, one of them begun"
		spread   = "slow links for single GPUs"
		allSlows = "slow-0 slow-1 slow-2 slow-3"
	)
	cases := map[string]struct {
		gpus, pods int
		gang       bool
		change     func(*v1.Pod)
		want       string // nodes, by name
	}{
		gangs + ": a preferred node affinity of its pods for a zone of slower ones, of weight 100":        {gpus: 2, pods: 2, gang: true, change: rather(100, v1.LabelTopologyZone, slowZone), want: "fast-0 fast-0"},
		gangs + ": a preferred node affinity of its pods for the GPU product of slower ones, of weight 1": {gpus: 2, pods: 2, gang: true, change: rather(1, productLabel, "L40S"), want: "slow-0 slow-0"},
		links + ": a preferred affinity to a pod on slower ones, of weight 100":                           {gpus: 2, change: near(100, "on-slow-0"), want: "fast-0"},
		links + ": a preferred node affinity for a zone of slower ones, of weight 100":                    {gpus: 2, change: rather(100, v1.LabelTopologyZone, slowZone), want: "fast-0"},
		links + ": a preferred node affinity for the GPU product of slower ones, of weight 1":             {gpus: 2, change: rather(1, productLabel, "L40S"), want: "slow-0"},
		links + ": a required node affinity for slower ones":                                              {gpus: 2, change: must(productLabel, "L40S"), want: "slow-0"},
		begun + ": a preferred node affinity for the zone of another":                                     {gpus: 2, change: rather(1, v1.LabelTopologyZone, "b"), want: "fast-1"},
		begun + ": a preferred affinity to a pod on another":                                              {gpus: 2, change: near(1, "on-fast-1"), want: "fast-1"},
		begun + ": a preferred node affinity for the instance type of another, of weight 1":               {gpus: 2, change: rather(1, v1.LabelInstanceTypeStable, "second"), want: "fast-1"},
		begun + ": a preferred node affinity for the GPU product that all of them have":                   {gpus: 2, change: rather(100, productLabel, "H200"), want: "fast-0"},
		begun + ": nothing that the pod says":                                                             {gpus: 2, change: func(*v1.Pod) {}, want: "fast-0"},
		spread + ": soft spreading by host over all machines":                                             {gpus: 1, pods: 4, change: spreadByHost, want: allSlows},
	}
	x.compareTable(t, slices.Collect(maps.Keys(cases)))
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got, pods []string
			gang := x.freshName("gang")
			for range max(1, tc.pods) {
				pod := gpuPod(x.freshName("soft"), shippedProfile, tc.gpus).Label(appLabel, "asks").With(tc.change).Obj()
				if tc.gang {
					pod.Annotations = notes{gangrequest.GangKey: gang, gangrequest.GangSizeKey: strconv.Itoa(tc.pods)}
				}
				e.create(t, pod)
				if pods = append(pods, pod.Name); !tc.gang {
					e.bound(t, pod.Name)
				}
			}
			for _, name := range pods {
				got = append(got, e.bound(t, name).Spec.NodeName)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tc.want {
				t.Errorf("on %v, want %s", got, tc.want)
			}
			e.remove(t, pods...)
		})
	}
}

// softTerms is the cluster of TestSoftTerms.
type softTerms struct{ *testEnv }

// at has a pod on a node.
func (x *softTerms) at(t *testing.T, node string, gpus int, labels map[string]string) {
	t.Helper()
	pod := gpuPod(x.freshName("soft"), shippedProfile, gpus).With(func(p *v1.Pod) { p.Labels = labels }).NodeSelector(map[string]string{v1.LabelHostname: node}).Obj()
	x.create(t, pod)
	x.bound(t, pod.Name)
}

// compareTable sees that the cases are the lines of the table of docs/objective.md.
func (x *softTerms) compareTable(t *testing.T, cases []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/objective.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "| between | and | decides |\n|---|---|---|\n")
	var lines []string
	for line := range strings.Lines(text) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "|") {
			break
		}
		lines = append(lines, strings.TrimPrefix(cells[0], "| ")+": "+cells[1])
	}
	slices.Sort(lines)
	slices.Sort(cases)
	if d := cmp.Diff(lines, cases); d != "" {
		t.Errorf("lines of docs/objective.md and cases (-docs, +cases):\n%s", d)
	}
}

// rather prefers nodes with a label.
func rather(weight int32, key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{
			{Weight: weight, Preference: labelTerm(key, value)},
		}}}
	}
}

// must requires nodes with a label.
func must(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{labelTerm(key, value)},
		}}}
	}
}

func labelTerm(key, value string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}}}
}

// near prefers the host of pods of an app.
func near(weight int32, app string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{
			Weight:          weight,
			PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: app}}},
		}}}}
	}
}

// spreadByHost spreads the pods that ask, if that is possible.
func spreadByHost(p *v1.Pod) {
	p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: "asks"}},
	}}
}
