// SPDX-License-Identifier: Apache-2.0

package clusterobjects

import (
	"reflect"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/nvtopo/nvtopo/internal/fieldpath"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// Kind is a kind of object that is read, by its plural name in the API.
type Kind string

// The kinds.
const (
	Nodes             Kind = "nodes"
	Pods              Kind = "pods"
	Namespaces        Kind = "namespaces"
	ConfigMaps        Kind = "configmaps" // of them only the profiles that a scheduler publishes
	Topologies        Kind = topologyv1alpha1.Resource
	ClusterTopologies Kind = topologyv1alpha1.ClusterTopologyResource
	Leases            Kind = "leases"
	PodGroups         Kind = "podgroups"
	Budgets           Kind = "poddisruptionbudgets"
	Jobs              Kind = "jobs"
	Claims            Kind = "persistentvolumeclaims"
	StorageClasses    Kind = "storageclasses"
	Workloads         Kind = "workloads"
	LocalQueues       Kind = "localqueues"
	ClusterQueues     Kind = "clusterqueues"
	ElasticJobs       Kind = poolv1alpha1.ElasticJobResource
)

// reading is the way in which the objects of a kind are read.
type reading struct {
	is     schema.GroupVersionKind
	custom bool // there may be no such kind at an API server
	add    func(o *Objects, data []byte) error
}

// readings holds the reading of each kind.
var readings = map[Kind]reading{
	Nodes:             {v1.SchemeGroupVersion.WithKind("Node"), false, into(func(o *Objects) *[]v1.Node { return &o.Nodes })},
	Pods:              {v1.SchemeGroupVersion.WithKind("Pod"), false, into(func(o *Objects) *[]v1.Pod { return &o.Pods })},
	Namespaces:        {v1.SchemeGroupVersion.WithKind("Namespace"), false, into(func(o *Objects) *[]v1.Namespace { return &o.Namespaces })},
	ConfigMaps:        {v1.SchemeGroupVersion.WithKind("ConfigMap"), false, addProfiles},
	Topologies:        {topologyv1alpha1.SchemeGroupVersion.WithKind(topologyv1alpha1.Kind), true, into(func(o *Objects) *[]topologyv1alpha1.NodeGPUTopology { return &o.Topologies })},
	ClusterTopologies: {topologyv1alpha1.SchemeGroupVersion.WithKind(topologyv1alpha1.ClusterTopologyKind), true, addClusterTopology},
	Leases:            {coordinationv1.SchemeGroupVersion.WithKind("Lease"), false, into(func(o *Objects) *[]coordinationv1.Lease { return &o.Leases })},
	PodGroups:         {schedulingv1alpha1.SchemeGroupVersion.WithKind("PodGroup"), true, into(func(o *Objects) *[]schedulingv1alpha1.PodGroup { return &o.PodGroups })},
	Budgets:           {policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), false, into(func(o *Objects) *[]policyv1.PodDisruptionBudget { return &o.Budgets })},
	Jobs:              {batchv1.SchemeGroupVersion.WithKind("Job"), false, into(func(o *Objects) *[]batchv1.Job { return &o.Jobs })},
	Claims:            {v1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), false, into(func(o *Objects) *[]v1.PersistentVolumeClaim { return &o.Claims })},
	StorageClasses:    {storagev1.SchemeGroupVersion.WithKind("StorageClass"), false, into(func(o *Objects) *[]storagev1.StorageClass { return &o.StorageClasses })},
	Workloads:         {kueue.SchemeGroupVersion.WithKind(kueue.WorkloadKind), true, into(func(o *Objects) *[]kueue.Workload { return &o.Workloads })},
	LocalQueues:       {kueue.SchemeGroupVersion.WithKind(kueue.LocalQueueKind), true, into(func(o *Objects) *[]kueue.LocalQueue { return &o.LocalQueues })},
	ClusterQueues:     {kueue.SchemeGroupVersion.WithKind(kueue.ClusterQueueKind), true, into(func(o *Objects) *[]kueue.ClusterQueue { return &o.ClusterQueues })},
	ElasticJobs:       {poolv1alpha1.SchemeGroupVersion.WithKind(poolv1alpha1.ElasticJobKind), true, into(func(o *Objects) *[]ElasticJob { return &o.ElasticJobs })},
}

// into returns a function that decodes an object and appends it to the list of its kind.
func into[T any](list func(*Objects) *[]T) func(*Objects, []byte) error {
	return func(o *Objects, data []byte) error {
		var v T
		if err := decode(data, &v); err != nil {
			return err
		}
		*list(o) = append(*list(o), v)
		return nil
	}
}

// addClusterTopology takes the ClusterTopology of the valid name and ignores others.
func addClusterTopology(o *Objects, data []byte) error {
	t := &topologyv1alpha1.ClusterTopology{}
	err := decode(data, t)
	if err == nil && t.Name == topologyv1alpha1.ClusterTopologyName {
		o.ClusterTopology = t
	}
	return err
}

// addProfiles takes the ConfigMap in which a scheduler publishes its profiles.
func addProfiles(o *Objects, data []byte) error {
	var c v1.ConfigMap
	err := decode(data, &c)
	if err == nil && c.Name == diagnosis.ProfilesName {
		o.Published, err = diagnosis.ParseProfiles(c.Data)
	}
	return err
}

// decode decodes an object. Fields that this program does not know are ignored: a newer API server has
// some. An error names the field.
func decode(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	if err == nil {
		return nil
	}
	return fieldpath.Explain(data, err, func(part []byte) error {
		return json.Unmarshal(part, reflect.New(reflect.TypeOf(into).Elem()).Interface())
	})
}
