// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// The profiles of the scheduler of these tests.
const (
	preBindProfile  = "with-prebind"
	bindingProfile  = "with-binding"
	topologyProfile = "topology-only"
	numaProfile     = "numa-only"
	agentProfile    = "agents-only"
	vendorsProfile  = "all-vendors"
	defaultProfile  = "default-scheduler"
)

// bothWrites are the profiles that differ in how annotations are written only.
var bothWrites = []string{preBindProfile, bindingProfile}

// schedulingProfiles are profiles of one process, so that every subtest also
// tests that they do not disturb each other.
func schedulingProfiles() []profile {
	resources := "resources: [" + strings.Join(vendorResources(), ", ") + "]"
	return []profile{
		{name: vendorsProfile, write: "PreBind", args: map[string]string{topologyPlugin: resources, numaPlugin: resources}},
		{name: preBindProfile, write: "PreBind"},
		{name: bindingProfile, write: "Binding"},
		{name: topologyProfile, write: "PreBind", plugins: []string{topologyPlugin}},
		{name: numaProfile, write: "PreBind", plugins: []string{numaPlugin}},
		{name: agentProfile, write: "PreBind", args: map[string]string{topologyPlugin: "unenforcedNodes: Refuse"}},
	}
}

// The next two run what needs no cluster of its own, each on one cluster with one
// scheduler. Every case has nodes of its own and pins its pods to them.

// TestScheduling is about what pods ask for.
func TestScheduling(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.startScheduler(t, schedulingProfiles()...)
	t.Run("annotations", l.testAnnotations)
	t.Run("sequences", l.testSequences)
	t.Run("refusals", l.testRefusals)
	t.Run("malformed annotations", l.testMalformed)
	t.Run("keys that nothing reads", l.testIgnoredKeys)
	t.Run("hostile pods", l.testHostilePods)
	t.Run("CPUs and memory beside the GPUs", l.testNUMAFit)
	t.Run("odd machines", l.testOddMachines)
	t.Run("one plugin alone", l.testOnePlugin)
	t.Run("pods without GPUs", l.testCPUOnly)
	t.Run("a node of each vendor", l.testVendors)
}

// TestSchedulingBesideOthers is about what graphs, agents, other pods and other schedulers
// do to a pod, and about the scheduler's own start and end.
func TestSchedulingBesideOthers(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.staleNodes(t)
	s := l.startScheduler(t, schedulingProfiles()...)
	t.Run("graphs that do not count", l.testStaleNodes)
	t.Run("nodes without an agent", l.testUnenforced)
	t.Run("two profiles on one node", l.testTwoProfiles)
	t.Run("pods of another scheduler", l.testForeign)
	t.Run("waking", l.testWaking)
	t.Run("preemption", l.testPreemption)
	t.Run("configurations refused at start", l.testRefusedConfigs)
	t.Run("restart", func(t *testing.T) { l.testRestart(t, s) })
}
