// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/release"
)

// NoTopologies is the reason shown when no node of a cluster has a graph.
const NoTopologies = "no node has a NodeGPUTopology: no exporter of nvtopo has run, or nvtopo was taken out by nvtopo uninstall"

// ShippedLease is the Lease under which the scheduler of the shipped configuration is elected.
const ShippedLease = "nvtopo-scheduler"

// clockSkew is the assumed bound on the difference of two clocks where it cannot be measured: between this
// machine and the API server, or the leader and the API server if the Lease has no write time; see
// docs/cli.md.
const clockSkew = time.Minute

// ofOneNode is the number of Leases that one node's programs write: the exporter's and the agent's.
const ofOneNode = 2

// LeaderLease is the Lease under which schedulers elect their leader.
type LeaderLease struct {
	Namespace string `json:"namespace"`
	// Name is empty where the plugins' argument leaderLease names no Lease.
	Name string `json:"name,omitempty"`
}

func (l *LeaderLease) String() string { return l.Namespace + "/" + l.Name }

// Election holds the data from which NoLeader decides whether a scheduler leads.
type Election struct {
	Published *Profiles              // nil: no scheduler has published, or it may not be read
	Leases    []coordinationv1.Lease // of the scheduler's namespace, and perhaps others
	// Placed is when one of the schedulers last gave a pod a node, see LastPlaced; zero: never.
	Placed time.Time
	Now    time.Time
	// Gone: the cluster has no object of nvtopo.
	Gone bool
}

// NoLeader returns why no scheduler leads, by which Lease, and the next step; why is empty while one leads, and
// where that is not known. If no scheduler has published its Lease, the shipped one is used if it is present.
func (e *Election) NoLeader() (of LeaderLease, why, next string) {
	if e.Gone {
		return LeaderLease{Namespace: release.Namespace, Name: ShippedLease}, gone, installStep
	}
	of, why = e.leaderless()
	return of, why, of.NextStep()
}

func (e *Election) leaderless() (of LeaderLease, why string) {
	of, said := LeaderLease{Namespace: release.Namespace, Name: ShippedLease}, false
	if e.Published != nil && e.Published.LeaderLease != nil {
		of, said = *e.Published.LeaderLease, true
	}
	if of.Name == "" {
		return of, ""
	}
	read := false // the namespace has Leases
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

// expired returns why a Lease has no leader: it has no holder, or is not renewed; empty if it may have
// one. The text is the same at each call, so that a caller that shows it on changes shows it once.
func (e *Election) expired(l *coordinationv1.Lease) string {
	why := fmt.Sprintf("no scheduler leads: Lease %s/%s ", l.Namespace, l.Name)
	free := l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == ""
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		if free {
			return why + "has no holder"
		}
		return ""
	}
	term := time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	renewed := l.Spec.RenewTime.Time
	// A scheduler that places pods without this Lease is elected by another one, or by none.
	if e.Placed.Sub(renewed) > term+clockSkew || !free && e.unrenewed(l) <= term {
		return ""
	}
	if free {
		why += "has no holder, and "
	}
	return why + "was last renewed at " + renewed.UTC().Format(time.RFC3339)
}

// unrenewed returns a lower bound of the time since a Lease was renewed. It assumes that the API server's
// clock is at least at the third newest write time of a Lease, and at most clockSkew behind this
// machine's. The two newest may be a hostile node's, which can write any time into managed fields.
func (e *Election) unrenewed(l *coordinationv1.Lease) time.Duration {
	least, at := e.Now.Add(-clockSkew), written(l)
	if at.IsZero() {
		return least.Sub(l.Spec.RenewTime.Time)
	}
	writes := make([]time.Time, len(e.Leases))
	for i := range e.Leases {
		writes[i] = written(&e.Leases[i])
	}
	slices.SortFunc(writes, func(a, b time.Time) int { return b.Compare(a) })
	if len(writes) > ofOneNode && writes[ofOneNode].After(least) {
		least = writes[ofOneNode]
	}
	return least.Sub(at)
}

// written returns when the API server last wrote a Lease, in whole seconds of its clock; zero if not
// known.
func written(l *coordinationv1.Lease) (last time.Time) {
	for i := range l.ManagedFields {
		if at := l.ManagedFields[i].Time; at != nil && at.After(last) {
			last = at.Time
		}
	}
	return last
}

const (
	gone        = "no scheduler leads: nvtopo is not installed, or was taken out by nvtopo uninstall: none of its programs has a Lease, and no node a NodeGPUTopology"
	installStep = "install nvtopo: kubectl apply -f manifests/core/namespace.yaml; helm upgrade --install nvtopo charts/nvtopo --namespace " + release.Namespace + " --values my-values.yaml --wait; or give the pods another spec.schedulerName"
)

// NextStep returns the commands that show why no scheduler runs.
func (l *LeaderLease) NextStep() string {
	return fmt.Sprintf("see why no scheduler runs: kubectl -n %[1]s get deploy,pods; with 0 replicas: kubectl -n %[1]s scale deploy/nvtopo-scheduler --replicas=2; else describe its pods, or kubectl -n %[1]s logs deploy/nvtopo-scheduler --previous", l.Namespace)
}

// TurnStep returns advice for a pod that has a place and waits for its turn.
func (l *LeaderLease) TurnStep() string {
	return fmt.Sprintf("wait a moment: nvtopo get pods -A --state pending shows what waits beside it; if it stays, see whether the scheduler runs: kubectl -n %s get deploy,pods", l.Namespace)
}

// LastPlaced returns when a pod of some schedulers last got its node, by the API server's clock; zero if
// none has.
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
