// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strconv"
	"testing"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testobj"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const gpu = topologyv1alpha1.DefaultResource

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// testEnv is a World under construction.
type testEnv struct {
	*World
	graphs map[string]*nvtopo.Graph
	lost   []topologyv1alpha1.NodeGPUTopology // that exporters would publish again
}

func newTestEnv() *testEnv {
	return &testEnv{World: &World{Objects: clusterobjects.Objects{Now: now}, Profiles: []Profile{ShippedProfile()}, ClaimsKnown: true, QueuesKnown: true}, graphs: map[string]*nvtopo.Graph{}}
}

// node adds a machine of the catalogue with a fresh graph and a living agent.
func (e *testEnv) node(tb testing.TB, name, kind string, labels map[string]string) *testEnv {
	tb.Helper()
	m, err := machine.Lookup(kind)
	if err != nil {
		tb.Fatal(err)
	}
	g, err := m.GraphFor(name)
	if err != nil {
		tb.Fatal(err)
	}
	e.graphs[name] = g
	uid := types.UID("node-" + name)
	t := topologyv1alpha1.FromGraph(name, gpu, g)
	t.UID, t.ResourceVersion, t.Spec.NodeUID = types.UID("topology-"+name), "1", uid
	e.Topologies = append(e.Topologies, *t)
	e.Nodes = append(e.Nodes, *testobj.Node(name).UID(string(uid)).Label(v1.LabelHostname, name).Labels(labels).
		GPUs(g.Len()).CPU("64").Memory("512Gi").Ready(v1.ConditionTrue).Obj())
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		e.Leases = append(e.Leases, coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Name: prefix + name, Namespace: "nvtopo-system", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: name, UID: uid}},
			},
			Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(now)), LeaseDurationSeconds: new(int32(120))},
		})
	}
	return e
}

// silence lets the Lease of a node's exporter run out.
func (e *testEnv) silence(name string) {
	for i := range e.Leases {
		if e.Leases[i].Name == nodelease.ExporterPrefix+name {
			e.Leases[i].Spec.RenewTime = new(metav1.NewMicroTime(now.Add(-time.Hour)))
		}
	}
}

// object is a node of the World, topology what it publishes.
func (e *testEnv) object(name string) *v1.Node {
	for i := range e.Nodes {
		if e.Nodes[i].Name == name {
			return &e.Nodes[i]
		}
	}
	return nil
}

func (e *testEnv) topology(name string) *topologyv1alpha1.NodeGPUTopology {
	for i := range e.Topologies {
		if e.Topologies[i].Name == name {
			return &e.Topologies[i]
		}
	}
	return nil
}

// replaced gives GPUs of a node other UUIDs than its pods were given.
func (e *testEnv) replaced(name string, gpus ...int) {
	for _, i := range gpus {
		e.topology(name).Spec.GPUs[i].ID = "GPU-new-" + strconv.Itoa(i)
	}
}

// pod is one that asks for GPUs, a CPU and 1 GiB.
func pod(name string, gpus int) *testobj.PodWrapper {
	return testobj.Pod(name).Namespace("team").UID("uid-" + name).Scheduler("topology-aware-scheduler").Phase(v1.PodPending).
		GPUs(gpus).CPU("1").Memory("1Gi")
}

// waits adds a pod that has no node.
func (e *testEnv) waits(p *v1.Pod) *v1.Pod {
	e.Pods = append(e.Pods, *p)
	return p
}

// holds adds a pod that has GPUs of a node, by position.
func (e *testEnv) holds(tb testing.TB, name, node string, gpus ...int) {
	tb.Helper()
	p := pod(name, len(gpus)).Node(node).Phase(v1.PodRunning).Obj()
	if len(gpus) > 0 {
		a := &allocation.Allocation{Version: allocation.Version, Node: node, PodUID: p.UID, Assumed: now.Add(-time.Hour), Containers: []allocation.Container{{Name: "main", Resource: gpu}}}
		for _, i := range gpus {
			a.Containers[0].GPUs = append(a.Containers[0].GPUs, e.graphs[node].GPUs[i].UUID)
		}
		a.NUMANodes = e.graphs[node].NUMAOf(nvtopo.MaskOf(gpus...))
		text, err := a.Encode()
		if err != nil {
			tb.Fatal(err)
		}
		p.Annotations[allocation.Key] = text
	}
	e.waits(p)
}

// pod is one of the World's.
func (e *testEnv) pod(name string) *v1.Pod {
	for i := range e.Pods {
		if e.Pods[i].Name == name {
			return &e.Pods[i]
		}
	}
	return nil
}

// group adds a PodGroup and its members that exist.
func (e *testEnv) group(name string, minimum int32, members []*v1.Pod, notes ...string) {
	g := schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", Annotations: map[string]string{}},
		Spec:       schedulingv1alpha1.PodGroupSpec{MinMember: minimum},
	}
	for i := 0; i+1 < len(notes); i += 2 {
		g.Annotations[notes[i]] = notes[i+1]
	}
	e.PodGroups = append(e.PodGroups, g)
	for _, p := range members {
		p.Labels[schedulingv1alpha1.PodGroupLabel] = name
		e.waits(p)
	}
}

// quota adds a queue of 8 GPUs, a Workload that has 6 of them, and one that the pod "asks" waits
// for.
func (e *testEnv) quota(tb testing.TB) {
	tb.Helper()
	q := kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "queue"}}
	q.Spec.ResourceGroups = []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{
		Name: "cubes", Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: resource.MustParse("8")}},
	}}}}
	e.ClusterQueues = append(e.ClusterQueues, q)
	e.LocalQueues = append(e.LocalQueues, kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "local"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "queue"},
	})
	e.Workloads = append(e.Workloads,
		kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "big", UID: "big"}, Spec: kueue.WorkloadSpec{QueueName: "local"},
			Status: kueue.WorkloadStatus{Admission: &kueue.Admission{ClusterQueue: "queue", PodSetAssignments: []kueue.PodSetAssignment{
				{Name: "main", ResourceUsage: v1.ResourceList{gpu: resource.MustParse("6")}},
			}}},
		},
		kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pod-asks", UID: "pod-asks", OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "asks", UID: "uid-asks"}}},
			Spec:       kueue.WorkloadSpec{QueueName: "local"},
			Status: kueue.WorkloadStatus{Conditions: []metav1.Condition{
				{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending", Message: "insufficient unused quota"},
			}},
		},
	)
}
