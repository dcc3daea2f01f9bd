// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// shapeOf is the shape of a pod without terms about nodes.
func shapeOf(d *Demand) *Shape { return &Shape{Pod: &v1.Pod{}, Demand: d} }

// TestApartShapes: a member of which no node takes two is on no node with another shape of the same class
// either, as the members of two PodSets of a job.
func TestApartShapes(t *testing.T) {
	port := func(number int32) *Shape {
		pod := testobj.Pod("p").Containers(v1.Container{Ports: []v1.ContainerPort{{HostPort: number}}}).Obj()
		r, err := podrequest.Parse(pod, &podrequest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewShape(pod, &Demand{Request: r})
		if err != nil {
			t.Fatal(err)
		}
		return &s
	}
	g := &Gang{Shapes: []*Shape{port(80), port(80), port(81), shapeOf(asking(1))}}
	r := g.request(1, func(int, int, nvtopo.Mask, []Placed) fabric.Supply { return fabric.Supply{Slots: fabric.Unlinked(1)} })
	for name, tc := range map[string]struct {
		shape  int
		beside []int
		want   int
	}{
		"beside its like":           {shape: 0, beside: []int{0, 1, 0, 0}},
		"beside another port":       {shape: 0, beside: []int{0, 0, 1, 0}, want: 1},
		"beside one without a port": {shape: 0, beside: []int{0, 0, 0, 1}, want: 1},
		"one without a port":        {shape: 3, beside: []int{1, 0, 0, 1}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := 0
			if s := r.Remaining(tc.shape, 0, 0, tc.beside); s.Slots != nil {
				got = s.Members()
			}
			if got != tc.want {
				t.Errorf("room for %d, want %d", got, tc.want)
			}
		})
	}
}

// TestGangRequest compares the planner's input about shapes with the calls for the nodes.
func TestGangRequest(t *testing.T) {
	type question struct {
		Shape, Node int
		Used        nvtopo.Mask
		Beside      []int // members of the shapes that ask for 0, 1, 2 … GPUs
	}
	asks := func(gpus int) *Demand {
		d := &Demand{Request: &podrequest.Request{}}
		if gpus > 0 {
			d.Resources = []podrequest.ResourceRequest{{Name: gpu, Count: gpus}}
		}
		return d
	}
	for name, tc := range map[string]struct {
		gpus []int // of each shape
		// beside are the members on node 1 passed in the call for the last shape; nil: no call.
		beside    []int
		wantGPUs  []int
		wantAsked []question
	}{
		"members that are alike are asked about once a node": {
			gpus: []int{2}, wantGPUs: []int{2}, wantAsked: []question{{0, 0, 0, nil}, {0, 1, 0, nil}},
		},
		"a launcher without GPUs is a shape of its own, and those that are not there are left out": {
			gpus: []int{2, 0}, beside: []int{3, 0}, wantGPUs: []int{2, 0},
			wantAsked: []question{{0, 0, 0, nil}, {0, 1, 0, nil}, {1, 0, 0, nil}, {1, 1, 0, nil}, {1, 1, 5, []int{0, 0, 3}}},
		},
		"members of its own shape count beside": {
			gpus: []int{1, 2}, beside: []int{1, 4}, wantGPUs: []int{1, 2},
			wantAsked: []question{{0, 0, 0, nil}, {0, 1, 0, nil}, {1, 0, 0, nil}, {1, 1, 0, nil}, {1, 1, 5, []int{0, 1, 4}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Gang{}
			for _, n := range tc.gpus {
				g.Shapes = append(g.Shapes, shapeOf(asks(n)))
			}
			var asked []question
			r := g.request(2, func(shape, node int, used nvtopo.Mask, beside []Placed) fabric.Supply {
				q := question{Shape: shape, Node: node, Used: used}
				for _, p := range beside {
					gpus := 0
					if p.Demand.HasGPUs() {
						gpus = p.Demand.Resources[0].Count
					}
					q.Beside = append(q.Beside, make([]int, max(0, gpus+1-len(q.Beside)))...)
					q.Beside[gpus] = p.Count
				}
				asked = append(asked, q)
				return fabric.Supply{Slots: fabric.Unlinked(1), Preference: int64(10*shape + node)}
			})
			last := len(g.Shapes) - 1
			if tc.beside != nil {
				if got, want := r.Remaining(last, 1, 5, tc.beside).Preference, int64(10*last+1); got != want {
					t.Errorf("what remains is of %d, want %d", got, want)
				}
			} else if r.Remaining != nil {
				t.Error("what members of one shape leave each other is asked of the node, and its slots say it")
			}
			var gpus []int
			for i, s := range r.Shapes {
				gpus = append(gpus, s.GPUs)
				for node := range s.Nodes {
					if got, want := s.Nodes[node].Preference, int64(10*i+node); got != want {
						t.Errorf("node %d has the supply %d for shape %d, want %d", node, got, i, want)
					}
				}
			}
			if diff := cmp.Diff(tc.wantGPUs, gpus); diff != "" {
				t.Errorf("GPUs of the shapes (-want,+got)\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantAsked, asked); diff != "" {
				t.Errorf("asked (-want,+got)\n%s", diff)
			}
		})
	}
}
