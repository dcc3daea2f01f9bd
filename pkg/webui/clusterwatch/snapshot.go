// SPDX-License-Identifier: Apache-2.0

package clusterwatch

import (
	"cmp"
	"errors"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// errUnread means that a kind is not read, or not yet.
var errUnread = errors.New("not read")

// Snapshot is the state of a cluster at one moment. It is immutable.
type Snapshot struct {
	// Version is the Watch's version when the snapshot was made, or an earlier one: a later change may be
	// included or not.
	Version int64
	// World has the objects of all namespaces; Of narrows it to the objects that an explanation reads.
	World explain.World
	Pools []poolv1alpha1.ComputePool
	// PoolsVersion changes when a pool does.
	PoolsVersion int64
	// HasPools and HasGroups report whether the kinds ComputePool and PodGroup are installed.
	HasPools, HasGroups bool
	// Problems are the failed reads.
	Problems []string
}

// Snapshot returns the objects that are held now.
func (w *Watch) Snapshot() *Snapshot {
	s := &Snapshot{Version: w.Version(), PoolsVersion: w.pools.version()}
	s.World = explain.World{
		Objects: clusterobjects.Objects{
			Now: w.config.Clock.Now(), Nodes: w.nodes.all(), Pods: w.pods.all(), Namespaces: w.namespaces.all(), Topologies: w.topologies.all(), Leases: w.leases.all(),
			ClusterTopology: w.fabric(), PodGroups: w.groups.all(), Jobs: w.jobs.all(), Claims: w.claims.all(), StorageClasses: w.classes.all(),
			Workloads: w.workloads.all(), LocalQueues: w.queues.all(), ClusterQueues: w.quotas.all(), Budgets: w.budgets.all(),
		},
		ClaimsKnown: len(w.claims.problems()) == 0 && w.claims.settled(),
		QueuesKnown: len(w.queues.problems()) == 0 && w.queues.settled(),
	}
	s.World.LeasesKnown = len(w.leases.problems()) == 0 && w.leases.settled()
	if asked, is, problem := w.topologies.state(); !asked || problem != "" || is && !w.topologies.settled() {
		s.World.Unread = map[clusterobjects.Kind]error{clusterobjects.Topologies: errUnread}
	}
	s.Pools = w.pools.all()
	s.HasPools, s.HasGroups = w.pools.installed(), w.groups.installed()
	for _, k := range w.kinds {
		s.Problems = append(s.Problems, k.problems()...)
	}
	if err := s.useProfiles(w); err != nil {
		s.Problems = append(s.Problems, err.Error()+"; pods are explained by the shipped profile")
	}
	return s
}

// useProfiles makes explanations use the profiles that the leading scheduler published.
func (s *Snapshot) useProfiles(w *Watch) error {
	var unread error
	for _, c := range w.published.all() {
		s.World.Published, unread = diagnosis.ParseProfiles(c.Data)
	}
	return cmp.Or(unread, s.World.UseProfiles(w.config.Schedulers, w.config.Resources))
}

// fabric returns the ClusterTopology that is used; nil if there is none.
func (w *Watch) fabric() *v1alpha1.ClusterTopology {
	all := w.fabrics.all()
	i := slices.IndexFunc(all, func(t v1alpha1.ClusterTopology) bool { return t.Name == v1alpha1.ClusterTopologyName })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// Of returns the objects that explain something in a namespace.
func (s *Snapshot) Of(namespace string) *explain.World {
	w := s.World
	w.Jobs = within(w.Jobs, func(j *batchv1.Job) bool { return j.Namespace == namespace })
	w.Claims = within(w.Claims, func(c *v1.PersistentVolumeClaim) bool { return c.Namespace == namespace })
	w.LocalQueues = within(w.LocalQueues, func(q *kueue.LocalQueue) bool { return q.Namespace == namespace })
	return &w
}

func within[T any](all []T, keep func(*T) bool) []T {
	var out []T
	for i := range all {
		if keep(&all[i]) {
			out = append(out, all[i])
		}
	}
	return out
}
