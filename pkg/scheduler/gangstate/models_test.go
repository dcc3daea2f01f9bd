// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
)

const gpuResource = "nvidia.com/gpu"

// machines are empty nodes of the catalogue's kinds, except for those that bound members use whole.
type machines struct {
	*nodestate.NodeCache
	nodes   map[string]*usage.Node
	taken   map[string]bool
	counter *fabric.SlotCounter
}

func (m *machines) Node(name string) *usage.Node { return m.nodes[name] }

func (m *machines) Supply(d *placement.Demand, info fwk.NodeInfo, _ fwk.NodeInfoLister, _ *placement.SlotCounter) fabric.Supply {
	name := info.Node().Name
	if m.taken[name] {
		return fabric.Supply{}
	}
	tables := m.nodes[name].Accels[0].Tables
	full := nvtopo.FullMask(tables.Graph().Len())
	return fabric.Supply{Slots: m.counter.Slots(&fabric.Machine{Tables: tables, Healthy: full, Free: full}, gpusOf(d), nvtopo.Constraint{})}
}

// TestGangModels: members of a gang get one model, which is that of members with nodes, and
// allow-mixed-models lets them get several.
func TestGangModels(t *testing.T) {
	on := func(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.NodeName = node } }
	mixed := func(p *v1.Pod) { p.Annotations[gangrequest.MixedModelsKey] = "true" }
	l40s := func(p *v1.Pod) { p.Annotations[podrequest.PromisedModelKey] = "NVIDIA L40S" }
	promisedOn := func(node string) func(*v1.Pod) { return func(p *v1.Pod) { l40s(p); p.Spec.NodeName = node } }
	six := []string{"l40s-8", "hgx-h200", "l40s-8", "hgx-h200", "l40s-8", "hgx-h200"}
	tests := map[string]struct {
		nodes   []string // node-0 and so on, in one rack
		members []func(*v1.Pod)
		any     bool     // Question.AnyModel
		want    []string // nodes of those without one
		wantErr string
	}{
		"one model, the faster":             {nodes: six, members: make([]func(*v1.Pod), 3), want: []string{"node-1", "node-3", "node-5"}},
		"any model: the fastest":            {nodes: six, members: []func(*v1.Pod){mixed, mixed, mixed}, want: []string{"node-1", "node-3", "node-5"}},
		"a replacement gets that of others": {nodes: six, members: []func(*v1.Pod){on("node-2"), on("node-4"), nil}, want: []string{"node-0"}},
		"a gang of two models goes on with them": {
			nodes: []string{"dgx-a100", "l40s-8", "hgx-h200", "hgx-h200"}, members: []func(*v1.Pod){on("node-1"), on("node-2"), nil}, want: []string{"node-3"},
		},
		"no model has room, several have": {
			nodes: six, members: make([]func(*v1.Pod), 4),
			wantErr: "cluster: 3 of 4 on NVIDIA-H200, 3 on NVIDIA-L40S; allow-mixed-models would fit",
		},
		"the model of the others has no room": {
			nodes: []string{"l40s-8", "hgx-h200"}, members: []func(*v1.Pod){on("node-1"), nil},
			wantErr: "cluster: 1 of 2 on NVIDIA-H200; allow-mixed-models would fit",
		},
		"the promised model": {nodes: six, members: []func(*v1.Pod){l40s, l40s, l40s}, want: []string{"node-0", "node-2", "node-4"}},
		"two equal members with two promises": {
			nodes: six, members: []func(*v1.Pod){l40s, func(p *v1.Pod) { p.Annotations[podrequest.PromisedModelKey] = "NVIDIA H200" }}, want: []string{"node-1", "node-3"},
		},
		"the promised model has no room": {
			nodes: []string{"l40s-8", "hgx-h200", "hgx-h200"}, members: []func(*v1.Pod){l40s, l40s},
			wantErr: "cluster: 1 of 2 on NVIDIA-L40S; allow-mixed-models would fit",
		},
		"it had its time": {
			nodes: []string{"l40s-8", "hgx-h200", "hgx-h200"}, members: []func(*v1.Pod){l40s, l40s}, any: true, want: []string{"node-1", "node-2"},
		},
		"it had its time, and no model has room": {
			nodes: []string{"l40s-8", "hgx-h200"}, members: []func(*v1.Pod){l40s, l40s}, any: true,
			wantErr: "cluster: 1 of 2 on NVIDIA-H200, 1 on NVIDIA-L40S; allow-mixed-models would fit",
		},
		"a replacement gets the model of those that run, whatever was promised": {
			nodes: six, members: []func(*v1.Pod){promisedOn("node-1"), promisedOn("node-3"), l40s}, want: []string{"node-5"},
		},
		"a replacement whose time is over gets what there is": {
			nodes: []string{"l40s-8", "l40s-8", "hgx-h200"}, members: []func(*v1.Pod){promisedOn("node-0"), promisedOn("node-1"), l40s}, any: true, want: []string{"node-2"},
		},
		"promised, and any will do": {
			nodes: []string{"l40s-8", "hgx-h200", "hgx-h200"}, members: []func(*v1.Pod){
				func(p *v1.Pod) { l40s(p); mixed(p) }, func(p *v1.Pod) { l40s(p); mixed(p) },
			}, want: []string{"node-1", "node-2"},
		},
		"there is no room at all": {nodes: six, members: make([]func(*v1.Pod), 7), wantErr: "cluster: 3 of 7 on NVIDIA-H200, 3 on NVIDIA-L40S"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := &machines{
				NodeCache: nodestate.New(nodestate.Config{}, clock.RealClock{}).Nodes, nodes: map[string]*usage.Node{}, taken: map[string]bool{}, counter: fabric.NewSlotCounter(),
			}
			spec := fabric.Spec{Levels: []fabric.Level{{Name: "rack"}}}
			var infos []fwk.NodeInfo
			for i, kind := range tc.nodes {
				node := fmt.Sprint("node-", i)
				m.nodes[node] = machineOf(t, kind)
				spec.Nodes = append(spec.Nodes, fabric.NodePath{Node: node, Path: []string{"rack"}})
				info := framework.NewNodeInfo()
				info.SetNode(schedtest.Node(node).Obj())
				infos = append(infos, info)
			}
			tree, _, err := fabric.NewTree(&spec)
			if err != nil {
				t.Fatal(err)
			}
			var pods, waiting []*v1.Pod
			for i, change := range tc.members {
				pod := member("g", len(tc.members), fmt.Sprint("pod-", i)).GPUs(8).Obj()
				if change != nil {
					change(pod)
				}
				pods = append(pods, pod)
				if pod.Spec.NodeName == "" {
					waiting = append(waiting, pod)
				} else {
					m.taken[pod.Spec.NodeName] = true
				}
			}
			gang := gangrequest.Read(gangrequest.Key{Source: gangrequest.SourceAnnotation, Namespace: "ns", Name: "g"}, nil, pods)
			answer, err := NewPlanner(m).Plan(&Question{
				Turn: &Turn{Gang: gang, Pods: waiting, Fresh: len(waiting) == len(pods)}, AnyModel: tc.any, View: &fabricview.View{Tree: tree, Revision: 1}, Nodes: infos,
				Demand: func(pod *v1.Pod) (*placement.Demand, error) {
					r, err := podrequest.Parse(pod, &podrequest.Options{Resources: []string{gpuResource}, Supported: podrequest.AllPolicies()})
					return &placement.Demand{Request: r}, err
				},
			})
			var got []string
			text := ""
			if err != nil {
				text = err.Error()
			} else {
				for i := range answer.Members {
					got = append(got, answer.Members[i].Node)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff([]any{tc.want, tc.wantErr}, []any{got, text}); diff != "" {
				t.Errorf("nodes and refusal (-want,+got)\n%s", diff)
			}
		})
	}
}

func machineOf(t *testing.T, kind string) *usage.Node {
	t.Helper()
	known, err := machine.Lookup(kind)
	if err != nil {
		t.Fatal(err)
	}
	g, err := known.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return &usage.Node{Accels: []*usage.Accel{{Resource: gpuResource, Graph: g, Tables: nvtopo.NewTables(g, nvtopo.DefaultWeights())}}}
}
