// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/release"
)

// NoTopologies says why no node of a cluster has a graph.
const NoTopologies = "no node has a NodeGPUTopology: no exporter of nvtopo has run, or nvtopo was taken out by nvtopo uninstall"

// ShippedLease is the Lease under which the scheduler of the shipped configuration is elected.
const ShippedLease = "nvtopo-scheduler"

// ShippedProfile is the schedulerName of the shipped configuration.
const ShippedProfile = "topology-aware-scheduler"

const (
	// leaderTerms is how many of its durations a Lease may be without renewal: another scheduler may be about to
	// take over.
	leaderTerms = 3
	// leaderTerm is the least that counts as a duration: a leader that gives its Lease up leaves one of a second.
	leaderTerm = 15 * time.Second
	// clockSkew is how far the clocks of the leader's machine, by which renewTime is, and of the one that looks may
	// be apart, as docs/cli.md says.
	clockSkew = time.Minute
)

// LeaderLease is the Lease under which schedulers elect their leader.
type LeaderLease struct {
	Namespace string `json:"namespace"`
	// Name is empty where the plugins' argument leaderLease names no Lease.
	Name string `json:"name,omitempty"`
}

func (l *LeaderLease) String() string { return l.Namespace + "/" + l.Name }

// Election is what shows whether a scheduler leads.
type Election struct {
	Published *Profiles              // nil: no scheduler has published, or it may not be read
	Leases    []coordinationv1.Lease // of the scheduler's namespace, and perhaps others
	// Placed is when one of the schedulers last gave a pod a node, see LastPlaced; zero: never.
	Placed time.Time
	Now    time.Time
}

// NoLeader says why no scheduler leads, and by which Lease; the text is empty while one leads, and where nothing
// tells. If no scheduler has said its Lease, the shipped one counts where it is there.
func (e *Election) NoLeader() (of LeaderLease, why string) {
	of, said := LeaderLease{Namespace: release.Namespace, Name: ShippedLease}, false
	if e.Published != nil && e.Published.LeaderLease != nil {
		of, said = *e.Published.LeaderLease, true
	}
	if of.Name == "" {
		return of, ""
	}
	read := false // Leases of the namespace
	for i := range e.Leases {
		l := &e.Leases[i]
		if l.Namespace == of.Namespace && l.Name == of.Name {
			return of, e.expired(l)
		}
		read = read || l.Namespace == of.Namespace
	}
	if !said || !read {
		return of, ""
	}
	return of, fmt.Sprintf("no scheduler leads: there is no Lease %s", &of)
}

// expired says that a Lease is no leader's; empty if it may be one's. The text is the same at each look, so that
// who shows it again whenever it changes does not show it again and again.
func (e *Election) expired(l *coordinationv1.Lease) string {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return ""
	}
	limit := leaderTerms*max(leaderTerm, time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second) + clockSkew
	age := e.Now.Sub(l.Spec.RenewTime.Time)
	// Who places pods without this Lease is elected by another one, or by none.
	if age <= limit || e.Placed.Sub(l.Spec.RenewTime.Time) > limit {
		return ""
	}
	what := "was last renewed"
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
		what = "has no holder, and was last renewed"
	}
	return fmt.Sprintf("no scheduler leads: Lease %s/%s %s at %s", l.Namespace, l.Name, what, l.Spec.RenewTime.UTC().Format(time.RFC3339))
}

// NextStep says how to see why no scheduler runs.
func (l *LeaderLease) NextStep() string {
	return fmt.Sprintf("see why no scheduler runs: kubectl -n %[1]s get deploy,pods; with 0 replicas: kubectl -n %[1]s scale deploy/nvtopo-scheduler --replicas=2; else describe its pods, or kubectl -n %[1]s logs deploy/nvtopo-scheduler --previous", l.Namespace)
}

// LastPlaced is when a pod of some schedulers last got its node, by the API server's clock; zero if none has.
func LastPlaced(pods []v1.Pod, scheduler func(name string) bool) (last time.Time) {
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" || !scheduler(p.Spec.SchedulerName) {
			continue
		}
		at := slices.IndexFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue
		})
		if at >= 0 && p.Status.Conditions[at].LastTransitionTime.After(last) {
			last = p.Status.Conditions[at].LastTransitionTime.Time
		}
	}
	return last
}
