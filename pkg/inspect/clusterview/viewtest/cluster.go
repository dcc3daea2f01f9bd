// SPDX-License-Identifier: Apache-2.0

package viewtest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// Cluster is a cluster in the making.
type Cluster struct {
	clusterobjects.Objects
}

// New returns an empty cluster, at a time that is always the same.
func New() *Cluster {
	c := &Cluster{}
	c.Now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	return c
}

// AddNode adds a node of a machine of the catalogue whose exporter is heard of, with 64 CPUs and
// 512 GiB of memory. Labels are key and value in turn.
func (c *Cluster) AddNode(name, machineName string, labels ...string) error {
	m, err := machine.Lookup(machineName)
	if err != nil {
		return err
	}
	g, err := m.GraphFor(name)
	if err != nil {
		return err
	}
	uid := types.UID("uid-" + name)
	amounts := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("512Gi"), v1.ResourcePods: resource.MustParse("110"),
		v1alpha1.DefaultResource: *resource.NewQuantity(int64(g.Len()), resource.DecimalSI),
	}
	n := v1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, Labels: map[string]string{}},
		Status: v1.NodeStatus{
			Capacity: amounts, Allocatable: amounts, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
	for i := 0; i+1 < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	t := v1alpha1.FromGraph(name, v1alpha1.DefaultResource, g)
	t.Spec.NodeUID = uid
	c.Nodes, c.Topologies = append(c.Nodes, n), append(c.Topologies, *t)
	c.addLease(nodelease.ExporterPrefix+name, name, uid, c.Now.Add(-10*time.Second))
	return nil
}

func (c *Cluster) addLease(name, node string, uid types.UID, renewed time.Time) {
	c.Leases = append(c.Leases, coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "nvtopo-system",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(renewed)), LeaseDurationSeconds: new(int32(nodelease.Duration / time.Second))},
	})
}

// Topology returns the NodeGPUTopology of a node, to be changed.
func (c *Cluster) Topology(node string) *v1alpha1.NodeGPUTopology {
	for i := range c.Topologies {
		if c.Topologies[i].Name == node {
			return &c.Topologies[i]
		}
	}
	return nil
}

// AddPod adds a running pod of a ReplicaSet that asks for n GPUs and has these, by index, by its
// annotation; by number only if none is named. It returns the pod, to be changed at once.
func (c *Cluster) AddPod(name, node string, n int, gpus ...int) *v1.Pod {
	asked := v1.ResourceList{v1alpha1.DefaultResource: resource.MustParse(strconv.Itoa(n)), v1.ResourceCPU: resource.MustParse("1")}
	p := v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: types.UID("uid-" + name), Labels: map[string]string{"app": name}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID("rs-" + name), Controller: new(true)}},
		},
		Spec: v1.PodSpec{
			NodeName: node, SchedulerName: "topology-aware-scheduler",
			Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: asked, Limits: asked}}},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
	if len(gpus) > 0 {
		var ids []string
		for _, i := range gpus {
			ids = append(ids, c.Topology(node).Spec.GPUs[i].ID)
		}
		a := &allocation.Allocation{
			Version: allocation.Version, Node: node, PodUID: p.UID, Assumed: c.Now.Add(-time.Hour),
			Containers: []allocation.Container{{Name: "main", Resource: v1alpha1.DefaultResource, GPUs: ids}},
		}
		p.Annotations[allocation.Key], _ = a.Encode() // of plain text and numbers: it can be written
	}
	c.Pods = append(c.Pods, p)
	return &c.Pods[len(c.Pods)-1]
}

// AddBudget adds a PodDisruptionBudget of the pods with the label app=NAME, of which so many may
// be disrupted now.
func (c *Cluster) AddBudget(name string, allowed int32) {
	c.Budgets = append(c.Budgets, policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	})
}

// Sample is a cluster of six machines in three racks of two spines. There are a gang of two
// pods, an unhealthy GPU, a stale graph, a pod of another scheduler, one that must not be moved,
// and one that a disruption budget protects.
func Sample() (*Cluster, error) {
	const spine, rack = "example.com/spine", "example.com/rack"
	c := New()
	for _, n := range []struct{ name, machine, spine, rack string }{
		{"h100-0", "dgx-h100", "s0", "r0"},
		{"h100-1", "dgx-h100", "s0", "r0"},
		{"h100-2", "dgx-h100", "s0", "r1"},
		{"v100-0", "dgx1-v100", "s0", "r1"},
		{"pcie-0", "a100-pcie-4-bridged", "s1", "r2"},
		{"old-0", "dgx-h100", "s1", "r2"},
	} {
		if err := c.AddNode(n.name, n.machine, spine, n.spine, rack, n.rack); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.name, err)
		}
	}
	c.ClusterTopology = &v1alpha1.ClusterTopology{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.ClusterTopologyKind},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterTopologyName},
		Spec: v1alpha1.ClusterTopologySpec{Levels: []v1alpha1.FabricLevel{
			{Name: "spine", NodeLabel: spine}, {Name: "rack", NodeLabel: rack},
		}},
	}
	c.AddPod("notebook-a", "h100-0", 1, 0)
	c.AddPod("notebook-b", "h100-0", 1, 5)
	c.AddPod("infer-0", "h100-1", 2, 2, 3)
	c.AddPod("train-0", "h100-2", 4, 0, 1, 2, 3).Annotations[gangrequest.GangKey] = "train"
	c.AddPod("train-1", "v100-0", 4, 0, 1, 2, 3).Annotations[gangrequest.GangKey] = "train"
	for i := range c.Pods {
		if c.Pods[i].Annotations[gangrequest.GangKey] != "" {
			c.Pods[i].Annotations[gangrequest.GangSizeKey] = "2"
		}
	}
	c.AddPod("pinned", "h100-2", 1, 4).Annotations["nvtopo.dev/movable"] = "false"
	c.AddPod("database", "h100-2", 1, 7)
	c.AddBudget("database", 0)
	c.AddPod("foreign", "pcie-0", 1).Spec.SchedulerName = "default-scheduler"
	c.AddPod("legacy", "old-0", 2, 0, 1)
	v100 := c.Topology("v100-0")
	v100.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: v100.Spec.GPUs[7].ID, Healthy: false, Reason: "Xid79"}}
	for i := range c.Leases {
		if c.Leases[i].Name == nodelease.ExporterPrefix+"old-0" {
			c.Leases[i].Spec.RenewTime = new(metav1.NewMicroTime(c.Now.Add(-time.Hour)))
		}
	}
	return c, nil
}

// List returns the objects as `kubectl get -o json` prints them.
func (c *Cluster) List() ([]byte, error) {
	var items []any
	for i := range c.Nodes {
		items = append(items, &c.Nodes[i])
	}
	for i := range c.Topologies {
		items = append(items, &c.Topologies[i])
	}
	for i := range c.Leases {
		items = append(items, &c.Leases[i])
	}
	for i := range c.Pods {
		items = append(items, &c.Pods[i])
	}
	for i := range c.Budgets {
		items = append(items, &c.Budgets[i])
	}
	if c.ClusterTopology != nil {
		items = append(items, c.ClusterTopology)
	}
	return json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}
