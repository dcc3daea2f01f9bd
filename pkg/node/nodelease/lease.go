// SPDX-License-Identifier: Apache-2.0

package nodelease

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationac "k8s.io/client-go/applyconfigurations/coordination/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/release"
)

// Prefixes of the Lease names; the node's name follows.
const (
	ExporterPrefix = "exporter-"
	AgentPrefix    = "agent-"
)

// Timing of the heartbeat. A Lease outlives three missed renewals.
const (
	Duration = 120 * time.Second
	Renewal  = 30 * time.Second
	// jitter spreads the renewals of many nodes: at most this much earlier or later.
	jitter = 5 * time.Second
)

// Lease is one Lease of a node.
type Lease struct {
	Namespace, Name string
	Node            string
	NodeUID         types.UID
	Manager         string // field manager of the program
}

// Renew renews the Lease as of now, or creates it, and annotates it with the program's version. The error
// is the API server's: the programs name the object in their own words.
func (l *Lease) Renew(ctx context.Context, client kubernetes.Interface, now time.Time) error {
	ac := coordinationac.Lease(l.Name, l.Namespace).
		WithAnnotations(release.Marks()).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Node").WithName(l.Node).WithUID(l.NodeUID)).
		WithSpec(coordinationac.LeaseSpec().
			WithHolderIdentity(l.Node).
			WithLeaseDurationSeconds(int32(Duration / time.Second)).
			WithRenewTime(metav1.NewMicroTime(now)))
	_, err := client.CoordinationV1().Leases(l.Namespace).Apply(ctx, ac, metav1.ApplyOptions{FieldManager: l.Manager, Force: true})
	return err
}

// Next returns the time until the next renewal; random is in [0, 1).
func Next(random float64) time.Duration {
	return Renewal + time.Duration((2*random-1)*float64(jitter))
}
