// SPDX-License-Identifier: Apache-2.0

package clusterobjects

import (
	"maps"
	"slices"
	"strings"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// Objects are a cluster's objects at one moment. Who reads them says which kinds are in it; others are empty.
type Objects struct {
	Now             time.Time // when they were read
	Nodes           []v1.Node
	Pods            []v1.Pod
	Namespaces      []v1.Namespace
	Topologies      []topologyv1alpha1.NodeGPUTopology
	ClusterTopology *topologyv1alpha1.ClusterTopology // the one that counts; nil: there is none
	Leases          []coordinationv1.Lease            // of exporters, agents and the scheduler
	PodGroups       []schedulingv1alpha1.PodGroup     // of scheduler-plugins
	Budgets         []policyv1.PodDisruptionBudget
	Jobs            []batchv1.Job
	Claims          []v1.PersistentVolumeClaim
	StorageClasses  []storagev1.StorageClass
	Workloads       []kueue.Workload
	LocalQueues     []kueue.LocalQueue
	ClusterQueues   []kueue.ClusterQueue
	ElasticJobs     []ElasticJob
	// Published is what the scheduler that leads has published of its profiles; nil: nothing.
	Published *diagnosis.Profiles
	// Schedulers are the states of scheduler processes.
	Schedulers []diagnosis.State
	// LeasesKnown: Leases are all those of one namespace. Of saved objects nobody knows.
	LeasesKnown bool
	// Faults say what could not be understood, and what is taken to be so instead.
	Faults []string
	// Unread are the kinds that Read was asked for and has not read, with the API server's error.
	Unread map[Kind]error
}

// ElasticJob is what is read of an ElasticJob. Its template need not be one of pods, which the status then
// says.
type ElasticJob struct {
	metav1.ObjectMeta `json:"metadata"`

	Status poolv1alpha1.ElasticJobStatus `json:"status"`
}

// Gone reports whether nothing of nvtopo is in the cluster: nothing is published, none of its programs has a Lease,
// and no node a NodeGPUTopology. It is false where that is not known.
func (o *Objects) Gone() bool {
	unread := o.Unread[Topologies]
	return o.LeasesKnown && (unread == nil || apierrors.IsNotFound(unread)) && o.Published == nil && len(o.Topologies) == 0 &&
		!slices.ContainsFunc(o.Leases, func(l coordinationv1.Lease) bool {
			return l.Name == diagnosis.ShippedLease || strings.HasPrefix(l.Name, nodelease.ExporterPrefix) || strings.HasPrefix(l.Name, nodelease.AgentPrefix)
		})
}

// Forbidden says which kinds the API server does not let read; empty if there are none.
func (o *Objects) Forbidden() string {
	var names []string
	for _, k := range slices.Sorted(maps.Keys(o.Unread)) {
		if apierrors.IsForbidden(o.Unread[k]) {
			names = append(names, string(k))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return MayNotBeRead(strings.Join(names, ", "))
}

// MayNotBeRead says of kinds that the API server does not let read them.
func MayNotBeRead(kinds string) string { return kinds + " may not be read, and are taken to be none" }

// Moment is when the objects were read, as far as they show that. It is the last write of a
// Lease by the API server's clock; without managed fields it is the last renewTime of a
// Lease. If a scheduler's state is later, its time counts. It is zero if there is none
// of these.
func (o *Objects) Moment() time.Time {
	var written, renewed time.Time
	for i := range o.Leases {
		l := &o.Leases[i]
		for j := range l.ManagedFields {
			if at := l.ManagedFields[j].Time; at != nil && at.After(written) {
				written = at.Time
			}
		}
		if at := l.Spec.RenewTime; at != nil && at.After(renewed) {
			renewed = at.Time
		}
	}
	t := written
	if t.IsZero() {
		t = renewed
	}
	for i := range o.Schedulers {
		if at := o.Schedulers[i].At; at.After(t) {
			t = at
		}
	}
	return t
}
