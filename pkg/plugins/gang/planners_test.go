// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/internal/testkit"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/placementcheck"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

// TestPlannersAgree: the scheduler, explain and Kueue's admission check give the same result for a gang,
// on random clusters of two racks and two models.
func TestPlannersAgree(t *testing.T) {
	t.Parallel()
	const rounds = 400
	r := newTestEnv(t, 2, 3)
	var w explain.World
	for i, node := range r.nodes {
		_, graph, leases := nodeOf(t, node.Name, "")
		if i%2 == 1 {
			graph.UID, graph.ResourceVersion = "remodelled", "2"
			for at := range graph.Spec.GPUs {
				graph.Spec.GPUs[at].Model = "other"
			}
			if _, err := r.state.Graphs.Apply(graph); err != nil {
				t.Fatal(err)
			}
			testkit.Soon(t, "the other model is known", func() bool { return r.state.Nodes.Node(node.Name).Accels[0].Graph.GPUs[0].Model == "other" })
		}
		ready := node.DeepCopy()
		ready.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		w.Nodes, w.Topologies = append(w.Nodes, *ready), append(w.Topologies, *graph)
		for _, lease := range leases {
			w.Leases = append(w.Leases, *lease.(*coordinationv1.Lease))
		}
	}
	said := map[bool]int{}
	for seed := range uint64(rounds) {
		q := &askedOf{testEnv: r, t: t, random: rand.New(rand.NewPCG(seed, 43)), world: w}
		q.fill()
		q.ask()
		answer, err := q.scheduler()
		said[err == nil]++
		want := fmt.Sprint(err)
		if err == nil {
			nodes := map[int]bool{}
			for _, node := range answer.Plan.Nodes {
				nodes[node] = true
			}
			want = fmt.Sprintf("%s: %d pods on %d node", r.state.Fabric.Current().Tree.Quality(answer.Plan.Nodes), len(answer.Plan.Nodes), len(nodes))
		}
		if got := q.check(); !strings.HasPrefix(got.Message, want) || (got.Verdict == placementcheck.Ready) != (err == nil) {
			t.Errorf("seed %d: the check says %s %q, the scheduler %q\n%s", seed, got.Verdict, got.Message, want, q)
		}
		got := q.explain()
		var room *fabric.UnplaceableError
		switch {
		case err == nil && got.Gang.Level != answer.Plan.Level:
			t.Errorf("seed %d: explain says level %q (%s), the scheduler %q\n%s", seed, got.Gang.Level, got.Reason, answer.Plan.Level, q)
		case errors.As(err, &room) && (got.Gang.Level != "" || got.Gang.Room != room.Have):
			t.Errorf("seed %d: explain says room for %d, level %q, the scheduler %q\n%s", seed, got.Gang.Room, got.Gang.Level, want, q)
		}
	}
	t.Log(said)
	if said[true] < rounds/5 || said[false] < rounds/5 {
		t.Errorf("placed or not: %v of %d, which tells little", said, rounds)
	}
}

// askedOf is a random cluster, and a gang that all planners plan.
type askedOf struct {
	*testEnv
	t      *testing.T
	random *rand.Rand
	world  explain.World
	gang   []*v1.Pod
}

// fill gives random GPUs of each node to pods.
func (q *askedOf) fill() {
	q.t.Helper()
	var pods []*v1.Pod
	for i := range q.world.Topologies {
		t := &q.world.Topologies[i]
		ids := []string{}
		for _, at := range q.random.Perm(len(t.Spec.GPUs))[:q.random.IntN(len(t.Spec.GPUs)+1)] {
			ids = append(ids, t.Spec.GPUs[at].ID)
		}
		if len(ids) == 0 {
			continue
		}
		pod := gpuPod("on-"+t.Name, len(ids)).Scheduler(release.Profile).Node(t.Name).Phase(v1.PodRunning).Obj()
		a := &allocation.Allocation{Version: allocation.Version, Node: t.Name, PodUID: pod.UID, Containers: []allocation.Container{{Name: "main", Resource: gpuResource, GPUs: ids}}}
		text, err := a.Encode()
		if err != nil {
			q.t.Fatal(err)
		}
		pod.Annotations = map[string]string{allocation.Key: text}
		pods = append(pods, pod)
		q.world.Pods = append(q.world.Pods, *pod)
	}
	*q.snapshot = *schedcache.NewSnapshot(pods, q.nodes)
}

// ask makes the gang, with a random topology request.
func (q *askedOf) ask() {
	size, gpus, cpu := 2+q.random.IntN(5), q.random.IntN(5), strconv.Itoa(1+q.random.IntN(40))
	if size == 6 {
		gpus = 8
		size = 2 + q.random.IntN(2)
	}
	wishes := map[string]string{}
	some := func(key, value string) {
		if q.random.IntN(3) == 0 {
			wishes[key] = value
		}
	}
	some(gangrequest.RequiredKey, "rack")
	some(gangrequest.MixedModelsKey, "true")
	some(gangrequest.SegmentSizeKey, "2")
	some(podrequest.TopologyPolicyKey, "single-numa-node")
	var spec v1.PodSpec
	if q.random.IntN(4) == 0 {
		spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{
			Weight: 1, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: rackLabel, Operator: v1.NodeSelectorOpIn, Values: []string{"rack-0"}}}},
		}}}}
	}
	var ports []v1.ContainerPort
	if q.random.IntN(4) == 0 {
		ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: v1.ProtocolTCP}}
	}
	for i := range size {
		pod := member("gang", size, i, gpus).Annotations(wishes).CPU(cpu).Scheduler(release.Profile).Phase(v1.PodPending).Obj()
		pod.Spec.Affinity, pod.Spec.Containers[0].Ports = spec.Affinity, ports
		q.gang = append(q.gang, pod)
		q.world.Pods = append(q.world.Pods, *pod)
	}
}

func (q *askedOf) String() string {
	pod := q.gang[0]
	return fmt.Sprintf("%d members, each %v %v, affinity %v, ports %v", len(q.gang), pod.Spec.Containers[0].Resources.Requests, pod.Annotations, pod.Spec.Affinity != nil, pod.Spec.Containers[0].Ports)
}

func (q *askedOf) scheduler() (*gangstate.Answer, error) {
	q.t.Helper()
	key, _ := gangrequest.KeyOf(q.gang[0])
	nodes, err := q.snapshot.NodeInfos().List()
	if err != nil {
		q.t.Fatal(err)
	}
	options := explain.ShippedProfile().Options
	return gangstate.NewPlanner(q.state.Nodes).Plan(&gangstate.Question{
		Turn: &gangstate.Turn{Gang: gangrequest.Read(key, nil, q.gang), Pods: q.gang, Fresh: true}, View: q.state.Fabric.Current(), Nodes: nodes, Snapshot: q.snapshot.NodeInfos(),
		Demand: func(pod *v1.Pod) (*placement.Demand, error) {
			r, err := podrequest.Parse(pod, &options)
			return &placement.Demand{Request: r}, err
		},
	})
}

func (q *askedOf) explain() *explain.Explanation {
	q.t.Helper()
	key, _ := gangrequest.KeyOf(q.gang[0])
	q.world.Now = time.Now()
	e, err := explain.GangOf(&q.world, key)
	if err != nil {
		q.t.Fatal(err)
	}
	return e
}

func (q *askedOf) check() placementcheck.Decision {
	pod, count := q.gang[0].DeepCopy(), int32(len(q.gang))
	job := &kueue.Workload{
		Spec:   kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: count}}},
		Status: kueue.WorkloadStatus{Admission: &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: &count}}}},
	}
	job.Namespace, job.Name, job.UID = pod.Namespace, "train", "train"
	job.Spec.PodSets[0].Template = v1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	world := placementcheck.World{Objects: clusterobjects.Objects{Now: time.Now(), Nodes: q.world.Nodes, Topologies: q.world.Topologies}}
	for i := range q.world.Pods {
		if q.world.Pods[i].Spec.NodeName != "" {
			world.Pods = append(world.Pods, q.world.Pods[i])
		}
	}
	return placementcheck.Decide(placementcheck.NewSnapshot(&world, placementcheck.NewGraphs()), job)
}
