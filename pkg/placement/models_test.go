// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

func asking(gpus int, change ...func(*podrequest.Request)) *Demand {
	d := &Demand{Request: &podrequest.Request{Admission: &kubeletadmission.Pod{}}}
	if gpus > 0 {
		d.Resources = []podrequest.ResourceRequest{{Name: gpu, Count: gpus}}
	}
	for _, c := range change {
		c(d.Request)
	}
	return d
}

func shapesOf(demands ...*Demand) (out []*Shape) {
	for _, d := range demands {
		out = append(out, shapeOf(d))
	}
	return out
}

// waitingAnd is a gang with a waiting member of each shape, and some running ones.
func waitingAnd(running []Member, shapes []*Shape) *Gang {
	g := &Gang{Shapes: shapes}
	for i, s := range shapes {
		g.Members = append(g.Members, Member{Pod: s.Pod, Demand: s.Demand, Shape: i})
	}
	for _, m := range running {
		m.Bound = true
		g.Members = append(g.Members, m)
	}
	return g
}

func noSupply(int, int, nvtopo.Mask, []Placed) fabric.Supply { return fabric.Supply{} }

// TestKinds: shapes are of one kind if they request the same GPUs, whatever else they request.
func TestKinds(t *testing.T) {
	cpu := func(r *podrequest.Request) { r.MilliCPU = 4000 }
	linked := func(r *podrequest.Request) { r.Constraint.MinBandwidth = 1 }
	var got []int
	for _, s := range (&Gang{Shapes: shapesOf(asking(8), asking(0), asking(8, cpu), asking(4), asking(8, linked))}).request(0, noSupply).Shapes {
		got = append(got, s.Kind)
	}
	if diff := cmp.Diff([]int{1, 0, 1, 2, 3}, got); diff != "" {
		t.Errorf("kinds (-want,+got)\n%s", diff)
	}
}

// TestFixModels: members that have nodes fix the models of members with the same request.
func TestFixModels(t *testing.T) {
	on := func(models ...string) *usage.Node {
		g := &nvtopo.Graph{}
		for _, m := range models {
			g.GPUs = append(g.GPUs, nvtopo.GPU{UUID: "gpu-" + m, Model: m})
		}
		return &usage.Node{Accels: []*usage.Accel{{Resource: gpu, Graph: g}}}
	}
	pod := func(ids ...string) *v1.Pod {
		p := &v1.Pod{}
		p.UID, p.Spec.NodeName = "pod", "node"
		if len(ids) == 0 {
			return p
		}
		a := &allocation.Allocation{
			Version: allocation.Version, PodUID: p.UID, Node: "node",
			Containers: []allocation.Container{{Name: "main", Resource: gpu, GPUs: ids}},
		}
		text, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations = map[string]string{allocation.Key: text}
		return p
	}
	tests := map[string]struct {
		running []Member
		want    []string // of the first shape, of 8 GPUs
	}{
		"nobody has a node":               {},
		"one that asks for the same":      {running: []Member{{Pod: pod(), Demand: asking(8), Graph: on("a", "a")}}, want: []string{"a"}},
		"two of different models":         {running: []Member{{Pod: pod(), Demand: asking(8), Graph: on("a")}, {Pod: pod(), Demand: asking(8), Graph: on("b")}}, want: []string{"a", "b"}},
		"one that asks for other GPUs":    {running: []Member{{Pod: pod(), Demand: asking(4), Graph: on("a")}}},
		"a launcher without GPUs":         {running: []Member{{Pod: pod(), Demand: asking(0), Graph: on("a")}}},
		"a node that nobody knows":        {running: []Member{{Pod: pod(), Demand: asking(8), Graph: nil}}},
		"a model that nobody knows":       {running: []Member{{Pod: pod(), Demand: asking(8), Graph: on("")}}},
		"a machine of two models":         {running: []Member{{Pod: pod(), Demand: asking(8), Graph: on("a", "b")}}},
		"and the pod says which it has":   {running: []Member{{Pod: pod("gpu-b"), Demand: asking(8), Graph: on("a", "b")}}, want: []string{"b"}},
		"and it has them of both of them": {running: []Member{{Pod: pod("gpu-a", "gpu-b"), Demand: asking(8), Graph: on("a", "b")}}, want: []string{"a", "b"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := waitingAnd(tc.running, shapesOf(asking(8), asking(0)))
			r := g.request(0, noSupply)
			if diff := cmp.Diff([][]string{tc.want, nil}, [][]string{r.Shapes[0].Models, r.Shapes[1].Models}); diff != "" {
				t.Errorf("models by shape (-want,+got)\n%s", diff)
			}
			g.AnyModel = true
			if mixed := g.request(0, noSupply); mixed.Shapes[0].Models != nil {
				t.Errorf("members of any model have %v", mixed.Shapes[0].Models)
			}
		})
	}
}

// TestPromisedModel: members get the promised model while no member has a node.
func TestPromisedModel(t *testing.T) {
	promised := func(model string) func(*podrequest.Request) {
		return func(r *podrequest.Request) { r.PromisedModel = model }
	}
	cpu := func(r *podrequest.Request) { r.MilliCPU = 4000 }
	node := &usage.Node{Accels: []*usage.Accel{{Resource: gpu, Graph: &nvtopo.Graph{GPUs: []nvtopo.GPU{{Model: "b"}}}}}}
	tests := map[string]struct {
		shapes  []*Demand
		running []Member
		want    [][]string
	}{
		"one shape":               {shapes: []*Demand{asking(8, promised("a"))}, want: [][]string{{"a"}}},
		"no GPUs":                 {shapes: []*Demand{asking(0, promised("a"))}, want: [][]string{nil}},
		"other GPUs, other model": {shapes: []*Demand{asking(8, promised("a")), asking(1, promised("b"))}, want: [][]string{{"a"}, {"b"}}},
		"the same GPUs, two promises": {
			shapes: []*Demand{asking(8, promised("a")), asking(8, promised("b"), cpu), asking(8, promised("b"), cpu)}, want: [][]string{nil, nil, nil},
		},
		"a promise to some of those that ask for the same": {shapes: []*Demand{asking(8), asking(8, promised("b"), cpu)}, want: [][]string{nil, nil}},
		"a member that runs says otherwise": {
			shapes: []*Demand{asking(8, promised("a"))}, running: []Member{{Pod: &v1.Pod{}, Demand: asking(8, promised("a")), Graph: node}}, want: [][]string{{"b"}},
		},
		"a member runs where nobody knows the model": {
			shapes: []*Demand{asking(8, promised("a"))}, running: []Member{{Pod: &v1.Pod{}, Demand: asking(8, promised("a")), Graph: nil}}, want: [][]string{{"a"}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := waitingAnd(tc.running, shapesOf(tc.shapes...)).request(0, noSupply)
			var got [][]string
			for i := range r.Shapes {
				got = append(got, r.Shapes[i].Models)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("models by shape (-want,+got)\n%s", diff)
			}
		})
	}
}
