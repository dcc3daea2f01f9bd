// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// other is a profile of which nothing is as shipped.
func other() diagnosis.Profile {
	return diagnosis.Profile{
		Name: "other", Resources: []string{"example.com/gpu"}, DefaultPolicy: "none", SupportedPolicies: []string{"none", "restricted"}, UnenforcedNodes: "Refuse",
		AllowNoGraph: true, CountStale: true, HardwareLabels: []string{"example.com/model"}, DefaultAffinity: "preferred", ResidualWeights: map[int]float64{2: 0.5},
		Order: &diagnosis.Order{BandwidthWeight: 1, LatencyWeight: 0.5, TimeTolerance: 0.25, LargerPodsHeadroom: 3, SingleGPUs: "LeastLost"},
	}
}

// TestPublishedProfile: all of a published profile arrives.
func TestPublishedProfile(t *testing.T) {
	got, err := Published(&diagnosis.Profiles{Profiles: []diagnosis.Profile{other()}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Profile{{
		SchedulerNames: []string{"other"},
		Options: podrequest.Options{
			Resources: []string{"example.com/gpu"}, DefaultPolicy: nvtopo.PolicyNone, Supported: []nvtopo.Policy{nvtopo.PolicyNone, nvtopo.PolicyRestricted},
			DefaultAffinity: podrequest.AffinityPreferred, HardwareLabels: []string{"example.com/model"},
		},
		Unenforced: placement.RefuseUnenforced, AllowNoGraph: true, CountStale: true,
		Order: nodeindex.Order{
			Weights: nodeindex.Weights{Bandwidth: 1, Latency: 0.5}, Tolerance: 0.25, Headroom: 3, Singles: nodeindex.SinglesLeastLost,
		},
		Weights: nvtopo.WeightsOf(map[int]float64{2: 0.5}),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("profile (-want,+got):\n%s", diff)
	}
}

// TestPublishedErrors: what cannot be read names the ConfigMap, the profile and the field.
func TestPublishedErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*diagnosis.Profile)
		want   string
	}{
		"a place of single GPUs": {func(p *diagnosis.Profile) { p.Order.SingleGPUs = "Fast" }, `order.singleGPUs: unknown place of single GPUs "Fast"`},
		"a policy":               {func(p *diagnosis.Profile) { p.SupportedPolicies[1] = "strict" }, "supportedPolicies[1]: "},
		"unenforced nodes":       {func(p *diagnosis.Profile) { p.UnenforcedNodes = "Maybe" }, "unenforcedNodes: "},
		"an affinity":            {func(p *diagnosis.Profile) { p.DefaultAffinity = "near" }, "defaultAffinity: "},
	} {
		p := other()
		tc.change(&p)
		_, err := Published(&diagnosis.Profiles{Profiles: []diagnosis.Profile{{Name: "first"}, p}})
		if want := `ConfigMap nvtopo-scheduler-profiles: profiles[1] "other": ` + tc.want; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", name, err, want)
		}
	}
	if _, err := diagnosis.ParseProfiles(map[string]string{diagnosis.ProfilesKey: `{"version":2}`}); err == nil || !strings.Contains(err.Error(), "version 2: this program reads 1") {
		t.Errorf("of another version: error %v", err)
	}
}

// TestUsedProfiles: names and resources that are given go before what is published, and that before the
// shipped profile.
func TestUsedProfiles(t *testing.T) {
	one := &diagnosis.Profiles{Profiles: []diagnosis.Profile{other()}}
	two := &diagnosis.Profiles{Profiles: []diagnosis.Profile{other(), {Name: "second", Resources: []string{"example.com/gpu"}}}}
	for name, tc := range map[string]struct {
		published        *diagnosis.Profiles
		names, resources []string
		want             []string // name, resource and headroom
	}{
		"nothing is published":                     {want: []string{"topology-aware-scheduler nvidia.com/gpu 1.5"}},
		"a scheduler of another name":              {names: []string{"x"}, want: []string{"x nvidia.com/gpu 1.5"}},
		"as published":                             {published: two, want: []string{"other example.com/gpu 3", "second example.com/gpu 1.5"}},
		"one of those published":                   {published: two, names: []string{"other"}, want: []string{"other example.com/gpu 3", "second example.com/gpu 1.5"}},
		"another name is as shipped beside one":    {published: one, names: []string{"x"}, want: []string{"other example.com/gpu 3", "x nvidia.com/gpu 1.5"}},
		"another name is as shipped beside two":    {published: two, names: []string{"x"}, want: []string{"other example.com/gpu 3", "second example.com/gpu 1.5", "x nvidia.com/gpu 1.5"}},
		"a resource that is given is that of all":  {published: two, resources: []string{"r/x"}, want: []string{"other r/x 3", "second r/x 1.5"}},
		"a resource and a name, nothing published": {names: []string{"x"}, resources: []string{"r/x"}, want: []string{"x r/x 1.5"}},
	} {
		w := &World{Objects: clusterobjects.Objects{Published: tc.published}}
		if err := w.UseProfiles(tc.names, tc.resources); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range w.Profiles {
			got = append(got, strings.Join(append(append([]string{}, p.SchedulerNames...), strings.Join(p.Options.Resources, ","), strconv.FormatFloat(p.Order.Headroom, 'f', -1, 64)), " "))
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: profiles (-want,+got):\n%s", name, diff)
		}
	}
}
