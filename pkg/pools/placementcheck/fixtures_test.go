// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/internal/testobj"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	gpu       = topologyv1alpha1.DefaultResource
	rackLabel = "topology.kubernetes.io/rack"
	poolLabel = "pool.nvtopo.dev/pool"
)

// noon is the time of all decisions.
var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// testEnv is a World under construction: nodes of one pool, and a queue for it.
type testEnv struct {
	World
	tb     testing.TB
	graphs map[string]*nvtopo.Graph
}

func newTestEnv(tb testing.TB) *testEnv {
	tb.Helper()
	t := &testEnv{World: World{Objects: clusterobjects.Objects{Now: noon}}, tb: tb, graphs: map[string]*nvtopo.Graph{}}
	t.Flavors = []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{poolLabel: "pool"}}}}
	t.ClusterQueues = []kueue.ClusterQueue{{ObjectMeta: metav1.ObjectMeta{Name: "cq"}, Spec: kueue.ClusterQueueSpec{
		ResourceGroups: []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{Name: "pool"}}}},
	}}}
	t.LocalQueues = []kueue.LocalQueue{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pool"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"}}}
	return t
}

// node adds a node of a machine of the catalogue. labels are added to those of the pool.
func (e *testEnv) node(name, kind string, labels map[string]string) *v1.Node {
	e.tb.Helper()
	m, err := machine.Lookup(kind)
	if err != nil {
		e.tb.Fatal(err)
	}
	g, err := m.GraphFor(name)
	if err != nil {
		e.tb.Fatal(err)
	}
	e.graphs[name] = g
	t := topologyv1alpha1.FromGraph(name, gpu, g)
	t.UID, t.Spec.NodeUID, t.ResourceVersion = types.UID("topology-"+name), types.UID("node-"+name), "1"
	e.Topologies = append(e.Topologies, *t)
	e.Nodes = append(e.Nodes, *testobj.Node(name).UID("node-"+name).Label(v1.LabelHostname, name).Label(poolLabel, "pool").Labels(labels).
		GPUs(g.Len()).CPU("64").Memory("512Gi").Ready(v1.ConditionTrue).Obj())
	return &e.Nodes[len(e.Nodes)-1]
}

// racks adds n nodes of eight linked GPUs in each of some racks: a-0, a-1 and so on in rack a.
func (e *testEnv) racks(n int, racks ...string) {
	e.tb.Helper()
	for _, rack := range racks {
		for i := range n {
			e.node(rack+"-"+strconv.Itoa(i), "dgx-a100", map[string]string{rackLabel: rack})
		}
	}
}

// pod adds a bound pod with the GPUs at these positions. change may be nil.
func (e *testEnv) pod(name, node string, change func(*v1.Pod), gpus ...int) {
	e.tb.Helper()
	p := testobj.Pod(name).Namespace("team").Node(node).Scheduler(release.Profile).Request(v1.ResourceCPU, "1").GPUs(len(gpus)).Phase(v1.PodRunning).Obj()
	c := allocation.Container{Name: "main", Resource: gpu}
	for _, i := range gpus {
		c.GPUs = append(c.GPUs, e.graphs[node].GPUs[i].UUID)
	}
	a := allocation.Allocation{Version: allocation.Version, Node: node, PodUID: p.UID, Containers: []allocation.Container{c}}
	text, err := a.Encode()
	if err != nil {
		e.tb.Fatal(err)
	}
	p.Annotations[allocation.Key] = text
	if change != nil {
		change(p)
	}
	e.Pods = append(e.Pods, *p)
}

// ofJob makes a pod belong to a job of this name.
func ofJob(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: name, UID: types.UID("job-" + name), Controller: new(true)}}
	}
}

func podSpec(gpus int) v1.PodSpec {
	c := v1.Container{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}
	if gpus > 0 {
		c.Resources.Limits = v1.ResourceList{gpu: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	}
	return v1.PodSpec{SchedulerName: release.Profile, Containers: []v1.Container{c}}
}

// job returns a Workload with quota for pods with GPUs, which needs a decision.
func job(name string, pods, gpus int, annotations map[string]string) *kueue.Workload {
	count := int32(pods)
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: name, UID: types.UID("job-" + name)}},
		},
		Spec: kueue.WorkloadSpec{QueueName: "pool", PodSets: []kueue.PodSet{{
			Name: "main", Count: count, Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: podSpec(gpus)},
		}}},
		Status: kueue.WorkloadStatus{
			Conditions:      []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon)}},
			Admission:       &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: &count, Flavors: map[v1.ResourceName]string{gpu: "pool"}}}},
			AdmissionChecks: []kueue.AdmissionCheckState{{Name: names.CheckPlacementObject, State: kueue.CheckPending}},
		},
	}
}

// evictedAtNoon makes a Workload one that Kueue has been evicting since noon.
func evictedAtNoon(w *kueue.Workload) *kueue.Workload {
	w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon)})
	return w
}

// gangOf returns the annotations of a gang with its topology request.
func gangOf(name string, size int, wishes ...string) map[string]string {
	out := map[string]string{gangrequest.GangKey: name, gangrequest.GangSizeKey: strconv.Itoa(size)}
	for i := 0; i+1 < len(wishes); i += 2 {
		out[wishes[i]] = wishes[i+1]
	}
	return out
}

// String lists the used devices, for a failing test.
func (e *testEnv) String() string {
	var b strings.Builder
	for i := range e.Pods {
		p := &e.Pods[i]
		fmt.Fprintf(&b, "%s on %s: %s\n", p.Name, p.Spec.NodeName, p.Annotations[allocation.Key])
	}
	return b.String()
}
