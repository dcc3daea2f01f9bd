// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
)

// counting counts the supplies computed. Each node has room for ten members without GPUs.
type counting struct {
	*nodestate.NodeCache
	asked int
}

func (c *counting) Supply(*placement.Demand, fwk.NodeInfo, fwk.NodeInfoLister, *placement.SlotCounter) fabric.Supply {
	c.asked++
	return fabric.Supply{Slots: fabric.Unlinked(10)}
}

func (c *counting) SupplyAfter(_ *placement.Demand, _ fwk.NodeInfo, _ fwk.NodeInfoLister, _ *placement.SlotCounter, _ nvtopo.Mask,
	placed []nodestate.Placed, _ sets.Set[types.UID],
) fabric.Supply {
	left := 10
	for _, p := range placed {
		left -= p.Count
	}
	return fabric.Supply{Slots: fabric.Unlinked(left)}
}

// plannedOn plans a gang on this number of nodes.
func plannedOn(t *testing.T, nodes int, pods []*v1.Pod, refused map[Refusal]int64) (*Answer, int, error) {
	t.Helper()
	return plannedWith(t, nodes, pods, refused, nil)
}

// plannedWith is plannedOn with volumes.
func plannedWith(t *testing.T, nodes int, pods []*v1.Pod, refused map[Refusal]int64, volumes func(*v1.Pod) []*v1.NodeSelector) (*Answer, int, error) {
	t.Helper()
	spec := fabric.Spec{}
	var infos []fwk.NodeInfo
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		spec.Nodes = append(spec.Nodes, fabric.NodePath{Node: name})
		info := framework.NewNodeInfo()
		info.SetNode(schedtest.Node(name).Obj())
		infos = append(infos, info)
		for key := range refused {
			if key.Node == name {
				refused[key] = info.GetGeneration()
			}
		}
	}
	tree, _, err := fabric.NewTree(&spec)
	if err != nil {
		t.Fatal(err)
	}
	gang := gangrequest.Read(gangrequest.Key{Source: gangrequest.SourceAnnotation, Namespace: "ns", Name: "g"}, nil, pods)
	c := &counting{NodeCache: nodestate.New(nodestate.Config{}, clock.RealClock{}).Nodes}
	answer, err := NewPlanner(c).Plan(&Question{
		Turn: &Turn{Gang: gang, Pods: gang.Members.Live, Refused: refused}, View: &fabricview.View{Tree: tree, Revision: 1}, Nodes: infos,
		Demand: demandOf, Volumes: volumes,
	})
	return answer, c.asked, err
}

func demandOf(pod *v1.Pod) (*placement.Demand, error) {
	r, err := podrequest.Parse(pod, &podrequest.Options{})
	return &placement.Demand{Request: r}, err
}

// claiming is a member with a volume of its own.
func claiming(i, size int) *v1.Pod {
	return member("g", size, fmt.Sprintf("p-%d", i)).
		Volume(v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}).Obj()
}

// TestClaimMerging: members that differ only in claims are checked once. Before, a volume for each member
// made each a shape of its own, and the supply of every node was computed for every member.
func TestClaimMerging(t *testing.T) {
	const nodes, size = 200, 1000
	var pods []*v1.Pod
	for i := range size {
		pods = append(pods, claiming(i, size))
	}
	answer, asked, err := plannedOn(t, nodes, pods, nil)
	if err != nil || len(answer.Members) != size {
		t.Fatalf("%v, %+v", err, answer)
	}
	if asked > nodes {
		t.Errorf("%d nodes were asked %d times for %d members, want once each", nodes, asked, size)
	}
}

// TestMemberClaimScope: the claim of one member keeps no other member from a node. The volume of one
// member is on another node.
func TestMemberClaimScope(t *testing.T) {
	pods := []*v1.Pod{claiming(0, 3), claiming(1, 3), claiming(2, 3)}
	d, err := demandOf(pods[1])
	if err != nil {
		t.Fatal(err)
	}
	answer, asked, err := plannedOn(t, 2, pods, map[Refusal]int64{{KeyOf(pods[1], d), "node-0"}: 0})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range answer.Members {
		if m.Pod.UID == pods[1].UID && m.Node == "node-0" {
			t.Errorf("%s goes to the node that it was refused", m.Pod.Name)
		}
	}
	if asked != 2 {
		t.Errorf("two nodes were asked %d times", asked)
	}
}

// TestRefusalByClaims: a refusal applies to members with claims or to those without: a member's claim may
// bind it to another node, so a node that refused one with claims takes one without, and the other way
// round. No two of these members go to one node.
func TestRefusalByClaims(t *testing.T) {
	t.Parallel()
	plain := func(i int) *v1.Pod { return member("g", 2, fmt.Sprintf("p-%d", i)).Obj() }
	tests := map[string]struct {
		pods    []*v1.Pod
		refused int // the member that was refused a node
	}{
		"the second one has no claim, and is refused": {[]*v1.Pod{claiming(0, 2), plain(1)}, 1},
		"the first one has a claim, and is refused":   {[]*v1.Pod{claiming(0, 2), plain(1)}, 0},
		"the second one has a claim, and is refused":  {[]*v1.Pod{plain(0), claiming(1, 2)}, 1},
		"the first one has no claim, and is refused":  {[]*v1.Pod{plain(0), claiming(1, 2)}, 0},
	}
	for name, tc := range tests {
		for _, node := range []string{"node-0", "node-1"} {
			t.Run(name+" "+node, func(t *testing.T) {
				t.Parallel()
				pods := make([]*v1.Pod, len(tc.pods))
				for i, pod := range tc.pods {
					pods[i] = pod.DeepCopy()
					pods[i].Labels = map[string]string{"app": "g"}
					pods[i].Spec.Affinity = apartFrom("g")
				}
				refused := pods[tc.refused]
				d, err := demandOf(refused)
				if err != nil {
					t.Fatal(err)
				}
				answer, _, err := plannedOn(t, 2, pods, map[Refusal]int64{{KeyOf(refused, d), node}: 0})
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range answer.Members {
					if got, want := m.Node == node, m.Pod != refused; got != want {
						t.Errorf("%s is on %s: %t, want %t", m.Pod.Name, node, got, want)
					}
				}
			})
		}
	}
}

// TestShapeSharing: members of one shape share the supplies of nodes, also across gangs.
func TestShapeSharing(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*v1.Pod)

		want bool // it is of the same shape as before
	}{
		"another label, as each pod of a Job has": {func(pod *v1.Pod) { pod.Labels["index"] = "1" }, true},
		"a label by which it may be beside it":    {func(pod *v1.Pod) { pod.Labels["app"] = "h" }, false},
		"a profile, which has its own arguments":  {func(pod *v1.Pod) { pod.Spec.SchedulerName = "other" }, false},
		"a message size, of which the gang has one": {func(pod *v1.Pod) {
			pod.Annotations[podrequest.MessageSizeKey] = "64k"
		}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := member("g", 1, "p-0").Label("app", "g").Obj()
			pod.Spec.Affinity = apartFrom("g")
			d, err := demandOf(pod)
			if err != nil {
				t.Fatal(err)
			}
			before := KeyOf(pod, d)
			tc.change(pod)
			if d, err = demandOf(pod); err != nil {
				t.Fatal(err)
			}
			if got := KeyOf(pod, d) == before; got != tc.want {
				t.Errorf("the same shape: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestAntiAffinityMembers: members with anti-affinity are planned beside others. The label of the first
// member allows it beside the two with anti-affinity.
func TestAntiAffinityMembers(t *testing.T) {
	t.Parallel()
	var pods []*v1.Pod
	for i, app := range []string{"h", "g", "g"} {
		pod := member("g", 3, fmt.Sprintf("p-%d", i)).Label("app", app).Obj()
		pod.Spec.Affinity = apartFrom("g")
		pods = append(pods, pod)
	}
	answer, _, err := plannedOn(t, 2, pods, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := answer.Members[1].Node, answer.Members[2].Node; a == b {
		t.Errorf("two members that keep apart are both on %s", a)
	}
}

// apartFrom keeps a pod off nodes with pods that have the label.
func apartFrom(app string) *v1.Affinity {
	return &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
		TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}}}}
}

// TestTooManyKinds: a gang with too many kinds of members is refused, and not planned for minutes.
func TestTooManyKinds(t *testing.T) {
	var pods []*v1.Pod
	for i := range maxGangShapes + 1 {
		pods = append(pods, member("g", maxGangShapes+1, fmt.Sprintf("p-%d", i)).NodeSelector(map[string]string{"kind": strconv.Itoa(i)}).Obj())
	}
	if _, _, err := plannedOn(t, 1, pods, nil); err == nil || !strings.Contains(err.Error(), "more than 64 kinds") {
		t.Errorf("%v, want a refusal", err)
	}
}
