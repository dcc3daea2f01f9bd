// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

func TestValidateTopologyAwareArgs(t *testing.T) {
	tests := map[string]struct {
		change func(*config.TopologyAwareArgs)
		want   []string // parts of the error; none: valid
	}{
		"defaults are valid":        {func(*config.TopologyAwareArgs) {}, nil},
		"one weight may be 0":       {func(a *config.TopologyAwareArgs) { a.LatencyWeight = new(0.0) }, nil},
		"weights need not sum to 1": {func(a *config.TopologyAwareArgs) { a.LatencyWeight = new(1.0) }, nil},
		"all weights are 0": {func(a *config.TopologyAwareArgs) {
			a.BandwidthWeight, a.LatencyWeight, a.FragmentationWeight = new(0.0), new(0.0), new(0.0)
		}, []string{"must not all be 0"}},
		"a weight above 1":            {func(a *config.TopologyAwareArgs) { a.BandwidthWeight = new(1.5) }, []string{"bandwidthWeight", "between 0 and 1"}},
		"a negative weight":           {func(a *config.TopologyAwareArgs) { a.FragmentationWeight = new(-0.1) }, []string{"fragmentationWeight"}},
		"a weight that is no number":  {func(a *config.TopologyAwareArgs) { a.LatencyWeight = new(math.NaN()) }, []string{"latencyWeight"}},
		"an undefaulted weight":       {func(a *config.TopologyAwareArgs) { a.LatencyWeight = nil }, []string{"latencyWeight", "Required"}},
		"no narrowing":                {func(a *config.TopologyAwareArgs) { a.NarrowTo = new(int32(0)) }, nil},
		"a negative list":             {func(a *config.TopologyAwareArgs) { a.NarrowTo = new(int32(-1)) }, []string{"narrowTo", "between 0 and 5000"}},
		"a tolerance above 100":       {func(a *config.TopologyAwareArgs) { a.NarrowTolerance = new(100.5) }, []string{"narrowTolerance"}},
		"nobody said about GPU nodes": {func(a *config.TopologyAwareArgs) { a.ReserveGPUNodes = nil }, []string{"reserveGPUNodes", "Required"}},
		"an unknown policy":           {func(a *config.TopologyAwareArgs) { a.SupportedPolicies[2] = "strict" }, []string{"supportedPolicies[2]", `"strict"`}},
		"an alias of a policy":        {func(a *config.TopologyAwareArgs) { a.SupportedPolicies[3] = "single-numa" }, nil},
		"a policy listed twice, once by its alias": {func(a *config.TopologyAwareArgs) {
			a.SupportedPolicies = append(a.SupportedPolicies, "single-numa")
		}, []string{"supportedPolicies[4]", "Duplicate"}},
		"a default that is not supported":               {func(a *config.TopologyAwareArgs) { a.SupportedPolicies = []string{"restricted"} }, []string{"defaultPolicy"}},
		"an unknown default policy":                     {func(a *config.TopologyAwareArgs) { a.DefaultPolicy = "x" }, []string{"defaultPolicy"}},
		"an unknown way to write":                       {func(a *config.TopologyAwareArgs) { a.AnnotationWrite = "Bind" }, []string{"annotationWrite", `"Binding"`}},
		"an unknown treatment of unenforced nodes":      {func(a *config.TopologyAwareArgs) { a.UnenforcedNodes = "allow" }, []string{"unenforcedNodes", "WholeNodeOnly"}},
		"an unknown treatment of nodes without a graph": {func(a *config.TopologyAwareArgs) { a.NodesWithoutTopology = "No" }, []string{"nodesWithoutTopology"}},
		"no resource":          {func(a *config.TopologyAwareArgs) { a.Resources = nil }, []string{"resources"}},
		"a native resource":    {func(a *config.TopologyAwareArgs) { a.Resources = []string{"cpu"} }, []string{"resources[0]", "extended resource"}},
		"a resource twice":     {func(a *config.TopologyAwareArgs) { a.Resources = []string{"a.b/c", "a.b/c"} }, []string{"resources[1]", "Duplicate"}},
		"a malformed resource": {func(a *config.TopologyAwareArgs) { a.Resources = []string{"a.b/"} }, []string{"resources[0]"}},
		"nine resources": {func(a *config.TopologyAwareArgs) {
			a.Resources = strings.Split("a/0 a/1 a/2 a/3 a/4 a/5 a/6 a/7 a/8", " ")
		}, []string{"resources", "Too many"}},
		"a group of one":              {func(a *config.TopologyAwareArgs) { a.ResidualWeights[1] = 1 }, []string{"residualWeights", "2 to 8"}},
		"a group of nine":             {func(a *config.TopologyAwareArgs) { a.ResidualWeights[9] = 1 }, []string{"residualWeights", "2 to 8"}},
		"a negative residual weight":  {func(a *config.TopologyAwareArgs) { a.ResidualWeights[2] = -1 }, []string{"residualWeights", "between 0 and 10"}},
		"a malformed namespace":       {func(a *config.TopologyAwareArgs) { a.Namespace = "A/B" }, []string{"namespace"}},
		"no timeout":                  {func(a *config.TopologyAwareArgs) { a.RequestTimeout.Duration = -time.Second }, []string{"requestTimeout"}},
		"a freshness of two renewals": {func(a *config.TopologyAwareArgs) { a.GraphFreshness.Duration = 2 * nodelease.Next(1) }, nil},
		"a freshness below two renewals": {func(a *config.TopologyAwareArgs) {
			a.GraphFreshness.Duration = 2*nodelease.Next(1) - time.Second
		}, []string{"graphFreshness", "at least 1m10s"}},
		"a negative freshness":                 {func(a *config.TopologyAwareArgs) { a.GraphFreshness.Duration = -time.Hour }, []string{"graphFreshness"}},
		"an unknown treatment of stale graphs": {func(a *config.TopologyAwareArgs) { a.StaleTopology = "Allow" }, []string{"staleTopology", `"Count"`}},
		"a wait of an hour for pods that end":  {func(a *config.TopologyAwareArgs) { a.TerminationWait.Duration = time.Hour }, nil},
		"a longer one": {func(a *config.TopologyAwareArgs) {
			a.TerminationWait.Duration = time.Hour + time.Second
		}, []string{"terminationWait", "between 1s and 1h"}},
		"a negative one":                  {func(a *config.TopologyAwareArgs) { a.TerminationWait.Duration = -time.Second }, []string{"terminationWait"}},
		"a malformed lease":               {func(a *config.TopologyAwareArgs) { a.LeaderLease.Name = "_" }, []string{"leaderLease.name"}},
		"a lease without a duration":      {func(a *config.TopologyAwareArgs) { a.LeaderLease.DurationSeconds = 0 }, []string{"leaderLease.durationSeconds"}},
		"an address to show the state at": {func(a *config.TopologyAwareArgs) { a.DebugAddress = "127.0.0.1:10270" }, nil},
		"an address for all interfaces":   {func(a *config.TopologyAwareArgs) { a.DebugAddress = ":10270" }, nil},
		"an address without a port":       {func(a *config.TopologyAwareArgs) { a.DebugAddress = "localhost" }, []string{"debugAddress", "host:port"}},
		"an address with port 0":          {func(a *config.TopologyAwareArgs) { a.DebugAddress = ":0" }, []string{"debugAddress", "1 to 65535"}},
		"an address whose port is a name": {func(a *config.TopologyAwareArgs) { a.DebugAddress = ":https" }, []string{"debugAddress"}},
		"a certificate for it": {func(a *config.TopologyAwareArgs) {
			a.DebugAddress, a.DebugCertFile, a.DebugKeyFile = ":1", "c", "k"
		}, nil},
		"a certificate without its key":  {func(a *config.TopologyAwareArgs) { a.DebugAddress, a.DebugCertFile = ":1", "c" }, []string{"debugCertFile", "go together"}},
		"a certificate for no address":   {func(a *config.TopologyAwareArgs) { a.DebugCertFile, a.DebugKeyFile = "c", "k" }, []string{"debugCertFile", "no effect"}},
		"several mistakes are all named": {func(a *config.TopologyAwareArgs) { a.Namespace, a.DefaultPolicy = "", "x" }, []string{"namespace", "defaultPolicy"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var args config.TopologyAwareArgs
			config.SetDefaults_TopologyAwareArgs(&args)
			tc.change(&args)
			checkError(t, config.ValidateTopologyAwareArgs(&args), tc.want)
		})
	}
}

// TestStaleGraphDefault: stale graphs are treated as missing ones unless said otherwise.
func TestStaleGraphDefault(t *testing.T) {
	tests := map[string]struct {
		missing config.NodesWithoutTopology
		stale   config.StaleTopology
		want    config.StaleTopology
	}{
		"nothing said":                       {want: config.StaleTopologyRefuse},
		"nodes without a graph allowed":      {missing: config.NodesWithoutTopologyAllow, want: config.StaleTopologyCount},
		"only nodes without a graph allowed": {missing: config.NodesWithoutTopologyAllow, stale: config.StaleTopologyRefuse, want: config.StaleTopologyRefuse},
		"only stale graphs allowed":          {stale: config.StaleTopologyCount, want: config.StaleTopologyCount},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			args := config.TopologyAwareArgs{NodesWithoutTopology: tc.missing, StaleTopology: tc.stale}
			config.SetDefaults_TopologyAwareArgs(&args)
			if args.StaleTopology != tc.want {
				t.Errorf("staleTopology %s, want %s", args.StaleTopology, tc.want)
			}
		})
	}
}

func TestValidateNUMAAffinityArgs(t *testing.T) {
	tests := map[string]struct {
		change func(*config.NUMAAffinityArgs)
		want   []string
	}{
		"defaults are valid": {func(*config.NUMAAffinityArgs) {}, nil},
		"no points at all": {func(a *config.NUMAAffinityArgs) {
			a.SameNUMABonus, a.CrossNUMAPenalty = ptr.To[int64](0), ptr.To[int64](0)
		}, nil},
		"a bonus above 100":    {func(a *config.NUMAAffinityArgs) { a.SameNUMABonus = ptr.To[int64](101) }, []string{"sameNUMABonus", "between 0 and 100"}},
		"a negative penalty":   {func(a *config.NUMAAffinityArgs) { a.CrossNUMAPenalty = ptr.To[int64](-1) }, []string{"crossNUMAPenalty"}},
		"an unknown affinity":  {func(a *config.NUMAAffinityArgs) { a.DefaultAffinity = "strict" }, []string{"defaultAffinity", "preferred"}},
		"cpuset not defaulted": {func(a *config.NUMAAffinityArgs) { a.CPUSet = nil }, []string{"cpuset"}},
		"a common mistake":     {func(a *config.NUMAAffinityArgs) { a.WriteAliases = nil }, []string{"writeAliases"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var args config.NUMAAffinityArgs
			config.SetDefaults_NUMAAffinityArgs(&args)
			tc.change(&args)
			checkError(t, config.ValidateNUMAAffinityArgs(&args), tc.want)
		})
	}
}

func TestValidateGangPlacementArgs(t *testing.T) {
	tests := map[string]struct {
		timeout, drain time.Duration
		want           []string
	}{
		"everything is off":                     {},
		"the longest":                           {timeout: 24 * time.Hour, drain: 24 * time.Hour},
		"the shortest":                          {timeout: 10 * time.Second, drain: time.Second},
		"a roll-back before an attempt can end": {timeout: 9 * time.Second, want: []string{"scheduleTimeout", `"9s"`, "must be 0, or between 10s and 24h0m0s"}},
		"a negative wait for a domain":          {drain: -time.Second, want: []string{"drainAfter"}},
		"a domain that is closed after a week":  {drain: 7 * 24 * time.Hour, want: []string{"drainAfter"}},
		"several mistakes are all named":        {timeout: -1, drain: -1, want: []string{"scheduleTimeout", "drainAfter"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			args := config.GangPlacementArgs{
				ScheduleTimeout: &metav1.Duration{Duration: tc.timeout}, DrainAfter: &metav1.Duration{Duration: tc.drain},
			}
			config.SetDefaults_GangPlacementArgs(&args)
			checkError(t, config.ValidateGangPlacementArgs(&args), tc.want)
		})
	}
	checkError(t, config.ValidateGangPlacementArgs(&config.GangPlacementArgs{}), []string{
		"scheduleTimeout: Required", "drainAfter: Required", "drainFor: Required", "drainShare: Required", "drainTotalShare: Required", "anyModelAfter: Required",
	})
}

func TestValidateDrain(t *testing.T) {
	tests := map[string]struct {
		change func(*config.GangPlacementArgs)
		want   []string
	}{
		"the defaults":                {func(*config.GangPlacementArgs) {}, nil},
		"without end":                 {func(a *config.GangPlacementArgs) { a.DrainFor = &metav1.Duration{} }, nil},
		"a time that is over at once": {func(a *config.GangPlacementArgs) { a.DrainFor = &metav1.Duration{Duration: time.Second} }, []string{"drainFor", "between 1m0s and 168h0m0s"}},
		"all nodes":                   {func(a *config.GangPlacementArgs) { a.DrainShare, a.DrainTotalShare = new(int32(100)), new(int32(100)) }, nil},
		"no node":                     {func(a *config.GangPlacementArgs) { a.DrainShare = new(int32(0)) }, []string{"drainShare", "between 1 and 100"}},
		"more than all nodes":         {func(a *config.GangPlacementArgs) { a.DrainTotalShare = new(int32(101)) }, []string{"drainTotalShare", "between 1 and 100"}},
		"less for all than for one":   {func(a *config.GangPlacementArgs) { a.DrainTotalShare = new(int32(49)) }, []string{"drainTotalShare", "at least drainShare"}},
		"namespaces": {
			func(a *config.GangPlacementArgs) {
				a.DrainNamespaces, a.DrainExcludedNamespaces = []string{"a", "b"}, []string{"c"}
			}, nil,
		},
		"no namespaces": {
			func(a *config.GangPlacementArgs) {
				a.DrainNamespaces, a.DrainExcludedNamespaces = []string{"a", "A", "a"}, []string{"", "a"}
			},
			[]string{`drainNamespaces[1]: Invalid value: "A"`, "drainNamespaces[2]: Duplicate", "drainExcludedNamespaces[0]: Invalid", `drainExcludedNamespaces[1]: Invalid value: "a": is in drainNamespaces, too`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			args := config.GangPlacementArgs{}
			config.SetDefaults_GangPlacementArgs(&args)
			tc.change(&args)
			checkError(t, config.ValidateGangPlacementArgs(&args), tc.want)
		})
	}
}

// checkError wants an error with all the parts, or none if there are no parts.
func checkError(t *testing.T, err error, parts []string) {
	t.Helper()
	if err == nil {
		if len(parts) > 0 {
			t.Errorf("accepted, want an error with %q", parts)
		}
		return
	}
	if len(parts) == 0 {
		t.Errorf("refused: %v", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error has no %q: %v", part, err)
		}
	}
}
