// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// defaultRequestTimeout is kube-apiserver's --request-timeout.
const defaultRequestTimeout = time.Minute

// defaultLeaderTerm is kube-scheduler's leaderElection.leaseDuration.
const defaultLeaderTerm = 15 * time.Second

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setPtr[T any](field **T, value T) {
	if *field == nil {
		*field = ptr.To(value)
	}
}

func setCommonDefaults(a *CommonArgs) {
	if a.Resources == nil {
		a.Resources = []string{"nvidia.com/gpu"}
	}
	set(&a.AnnotationWrite, WritePreBind)
	setPtr(&a.WriteAliases, true)
	set(&a.Namespace, "nvtopo-system")
	set(&a.RequestTimeout, metav1.Duration{Duration: defaultRequestTimeout})
	set(&a.LeaderLease.Term, metav1.Duration{Duration: defaultLeaderTerm})
}

// SetDefaults_TopologyAwareArgs fills in what was left out.
func SetDefaults_TopologyAwareArgs(a *TopologyAwareArgs) { //nolint:revive // the name apimachinery's generators expect
	setCommonDefaults(&a.CommonArgs)
	if a.SupportedPolicies == nil {
		a.SupportedPolicies = []string{"none", "best-effort", "restricted", "single-numa-node"}
	}
	set(&a.DefaultPolicy, "best-effort")
	setPtr(&a.BandwidthWeight, 0.4)
	setPtr(&a.LatencyWeight, 0.3)
	setPtr(&a.FragmentationWeight, 0.3)
	set(&a.UnenforcedNodes, UnenforcedAllow)
	set(&a.NodesWithoutTopology, TopologyRefuse)
}

// SetDefaults_NUMAAffinityArgs fills in what was left out.
func SetDefaults_NUMAAffinityArgs(a *NUMAAffinityArgs) { //nolint:revive // the name apimachinery's generators expect
	setCommonDefaults(&a.CommonArgs)
	setPtr(&a.SameNUMABonus, 50)
	setPtr(&a.CrossNUMAPenalty, 20)
	set(&a.DefaultAffinity, "none")
	setPtr(&a.CPUSet, true)
}
