// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/release"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

const (
	defaultResource  = "nvidia.com/gpu"
	defaultNamespace = release.Namespace

	// defaultRequestTimeout is a little above the default --request-timeout of
	// kube-apiserver, 60 s.
	defaultRequestTimeout = 65 * time.Second

	// defaultTerminationWait is what jobs that save their state on SIGTERM commonly ask
	// for, ten times the default grace period of a pod.
	defaultTerminationWait = 5 * time.Minute

	// defaultScheduleTimeout is gangrequest.DefaultScheduleTimeout, which is in a layer above and is
	// what programs go by that read no arguments of the scheduler. A test of GangPlacement compares them.
	defaultScheduleTimeout = 10 * time.Minute
	// defaultDrainAfter is six times the patience of a communication-heavy gang.
	defaultDrainAfter = 30 * time.Minute
	// defaultDrainFor lets pods that run for half a day end.
	defaultDrainFor = 12 * time.Hour
	// defaultDrainShare and defaultDrainTotalShare leave half of the nodes to other namespaces, and a
	// quarter to those that wait for nothing.
	defaultDrainShare, defaultDrainTotalShare = 50, 75
	// defaultAnyModelAfter is the patience of a communication-heavy gang.
	defaultAnyModelAfter = 5 * time.Minute

	// defaultLeaseSeconds is the default leaderElection.leaseDuration of kube-scheduler.
	defaultLeaseSeconds = 15
)

// SetDefaults_TopologyAwareArgs fills in what the operator left out.
//
//nolint:revive // the name is the one that Kubernetes' defaulting has everywhere
func SetDefaults_TopologyAwareArgs(args *TopologyAwareArgs) {
	setCommonDefaults(&args.CommonArgs)
	if len(args.SupportedPolicies) == 0 {
		for _, p := range []nvtopo.Policy{
			nvtopo.PolicyNone, nvtopo.PolicyBestEffort, nvtopo.PolicyRestricted, nvtopo.PolicySingleNUMANode,
		} {
			args.SupportedPolicies = append(args.SupportedPolicies, p.String())
		}
	}
	args.DefaultPolicy = cmp.Or(args.DefaultPolicy, nvtopo.PolicyBestEffort.String())
	args.BandwidthWeight = cmp.Or(args.BandwidthWeight, new(0.4))
	args.LatencyWeight = cmp.Or(args.LatencyWeight, new(0.3))
	args.FragmentationWeight = cmp.Or(args.FragmentationWeight, new(0.3))
	args.TimeTolerance = cmp.Or(args.TimeTolerance, new(0.1))
	args.LargerPodsHeadroom = cmp.Or(args.LargerPodsHeadroom, new(1.5))
	args.SingleGPUs = cmp.Or(args.SingleGPUs, SingleGPUsSlowLinks)
	if args.HardwareLabels == nil {
		args.HardwareLabels = topologyv1alpha1.DefaultHardwareLabels()
	}
	args.NarrowTo = cmp.Or(args.NarrowTo, new(int32(16)))
	args.NarrowTolerance = cmp.Or(args.NarrowTolerance, new(0.0))
	args.ReserveGPUNodes = cmp.Or(args.ReserveGPUNodes, new(true))
	args.UnenforcedNodes = cmp.Or(args.UnenforcedNodes, UnenforcedNodesAllow)
	args.NodesWithoutTopology = cmp.Or(args.NodesWithoutTopology, NodesWithoutTopologyRefuse)
	stale := StaleTopologyRefuse
	if args.NodesWithoutTopology == NodesWithoutTopologyAllow {
		stale = StaleTopologyCount // who may run where nothing is known may run there
	}
	args.StaleTopology = cmp.Or(args.StaleTopology, stale)
	args.TerminationWait = cmp.Or(args.TerminationWait, metav1.Duration{Duration: defaultTerminationWait})
}

// SetDefaults_NUMAAffinityArgs fills in what the operator left out.
//
//nolint:revive // the name is the one that Kubernetes' defaulting has everywhere
func SetDefaults_NUMAAffinityArgs(args *NUMAAffinityArgs) {
	setCommonDefaults(&args.CommonArgs)
	args.SameNUMABonus = cmp.Or(args.SameNUMABonus, new(int64(50)))
	args.CrossNUMAPenalty = cmp.Or(args.CrossNUMAPenalty, new(int64(20)))
	args.DefaultAffinity = cmp.Or(args.DefaultAffinity, NUMAAffinityNone)
	args.CPUSet = cmp.Or(args.CPUSet, new(true))
}

// SetDefaults_GangPlacementArgs fills in what the operator left out.
//
//nolint:revive // the name is the one that Kubernetes' defaulting has everywhere
func SetDefaults_GangPlacementArgs(args *GangPlacementArgs) {
	args.ScheduleTimeout = cmp.Or(args.ScheduleTimeout, &metav1.Duration{Duration: defaultScheduleTimeout})
	args.DrainAfter = cmp.Or(args.DrainAfter, &metav1.Duration{Duration: defaultDrainAfter})
	args.DrainFor = cmp.Or(args.DrainFor, &metav1.Duration{Duration: defaultDrainFor})
	args.DrainShare = cmp.Or(args.DrainShare, new(int32(defaultDrainShare)))
	args.DrainTotalShare = cmp.Or(args.DrainTotalShare, new(max(defaultDrainTotalShare, *args.DrainShare)))
	args.AnyModelAfter = cmp.Or(args.AnyModelAfter, &metav1.Duration{Duration: defaultAnyModelAfter})
}

func setCommonDefaults(args *CommonArgs) {
	args.AnnotationWrite = cmp.Or(args.AnnotationWrite, AnnotationWritePreBind)
	if len(args.Resources) == 0 {
		args.Resources = []string{defaultResource}
	}
	setWeightDefaults(args)
	args.WriteAliases = cmp.Or(args.WriteAliases, new(true))
	args.Namespace = cmp.Or(args.Namespace, defaultNamespace)
	args.RequestTimeout = cmp.Or(args.RequestTimeout, metav1.Duration{Duration: defaultRequestTimeout})
	args.LeaderLease.DurationSeconds = cmp.Or(args.LeaderLease.DurationSeconds, defaultLeaseSeconds)
}

func setWeightDefaults(args *CommonArgs) {
	if args.ResidualWeights == nil {
		args.ResidualWeights = map[int]float64{}
	}
	published := nvtopo.DefaultWeights()
	for g := minGroup; g < len(published.Group); g++ {
		if _, given := args.ResidualWeights[g]; !given {
			args.ResidualWeights[g] = float64(published.Group[g]) / weightScale
		}
	}
}
