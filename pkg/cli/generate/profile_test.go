// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/nvtopo/nvtopo/manifests"
	ours "github.com/nvtopo/nvtopo/pkg/apis/config"
)

// loadProfile reads a configuration as the scheduler does, strictly.
func loadProfile(t *testing.T, data []byte) *config.KubeSchedulerConfiguration {
	t.Helper()
	obj, _, err := schedulerscheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	c, ok := obj.(*config.KubeSchedulerConfiguration)
	if !ok {
		t.Fatalf("got %T", obj)
	}
	return c
}

// TestProfiles: profiles are accepted by the scheduler. The test decodes and validates them with the
// scheduler's own code.
func TestProfiles(t *testing.T) {
	for _, w := range []Workload{Training, Inference, Mixed} {
		for _, onBinding := range []bool{false, true} {
			p, err := ProfileFor(w)
			if err != nil {
				t.Fatal(err)
			}
			p.OnBinding, p.SchedulerName, p.CrossNUMAPenalty, p.NarrowTo = onBinding, "gpu-"+string(w), 0, 0
			data, err := p.Write()
			if err != nil {
				t.Fatal(err)
			}
			c := loadProfile(t, data)
			if got := c.Profiles[0].SchedulerName; len(c.Profiles) != 1 || got != p.SchedulerName {
				t.Errorf("%s: profile %q, want %q", w, got, p.SchedulerName)
			}
			if c.LeaderElection.ResourceName != "nvtopo-scheduler" || c.ClientConnection.QPS != 1000 || c.EnableProfiling {
				t.Errorf("%s: %+v, %+v, profiling %t; want what is shipped", w, c.LeaderElection, c.ClientConnection, c.EnableProfiling)
			}
			checkArgs(t, p, c)
		}
	}
}

func checkArgs(t *testing.T, p *Profile, c *config.KubeSchedulerConfiguration) {
	t.Helper()
	found := 0
	for _, pc := range c.Profiles[0].PluginConfig {
		switch args := pc.Args.(type) {
		case *ours.TopologyAwareArgs:
			found++
			if err := ours.ValidateTopologyAwareArgs(args); err != nil {
				t.Error(err)
			}
			got := []float64{*args.BandwidthWeight, *args.LatencyWeight, *args.FragmentationWeight}
			if got[0] != p.BandwidthWeight || got[1] != p.LatencyWeight || got[2] != p.FragmentationWeight || *args.NarrowTo != p.NarrowTo {
				t.Errorf("shares %v, narrowed to %d, want those of %+v", got, *args.NarrowTo, p)
			}
			if (args.AnnotationWrite == ours.AnnotationWriteBinding) != p.OnBinding || args.LeaderLease.Name != "nvtopo-scheduler" {
				t.Errorf("annotations by %s, Lease %q", args.AnnotationWrite, args.LeaderLease.Name)
			}
		case *ours.NUMAAffinityArgs:
			found++
			if err := ours.ValidateNUMAAffinityArgs(args); err != nil {
				t.Error(err)
			}
			if *args.CrossNUMAPenalty != p.CrossNUMAPenalty || string(args.DefaultAffinity) != p.DefaultAffinity {
				t.Errorf("penalty %d, affinity %s, want those of %+v", *args.CrossNUMAPenalty, args.DefaultAffinity, p)
			}
		}
	}
	if found != 2 {
		t.Errorf("arguments of %d of our plugins, want 2", found)
	}
	for _, e := range c.Profiles[0].Plugins.MultiPoint.Enabled {
		if e.Name == ours.TopologyAwareName && e.Weight != p.TopologyWeight || e.Name == ours.NUMAAffinityName && e.Weight != p.NUMAWeight {
			t.Errorf("%s has weight %d, want those of %+v", e.Name, e.Weight, p)
		}
	}
}

// TestProfileExamples: the files in manifests/examples/profiles equal the generated profiles of each
// workload.
func TestProfileExamples(t *testing.T) {
	for _, w := range []Workload{Training, Inference, Mixed} {
		p, err := ProfileFor(w)
		if err != nil {
			t.Fatal(err)
		}
		want, err := p.Write()
		if err != nil {
			t.Fatal(err)
		}
		name := "examples/profiles/" + string(w) + ".yaml"
		got, err := manifests.FS.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("manifests/%s is not what nvtopo generate scheduler-profile --workload %s writes (-written +file):\n%s", name, w, diff)
		}
	}
}

func TestBadProfiles(t *testing.T) {
	if _, err := ProfileFor("batch"); err == nil || !strings.Contains(err.Error(), `"batch"`) {
		t.Errorf("got %v", err)
	}
	for name, tc := range map[string]struct {
		change func(*Profile)
		want   string
	}{
		"shares that are all 0":             {func(p *Profile) { p.BandwidthWeight, p.LatencyWeight, p.FragmentationWeight = 0, 0, 0 }, "not all may be 0"},
		"a share above 1":                   {func(p *Profile) { p.LatencyWeight = 1.5 }, "1.5"},
		"a name nobody can have":            {func(p *Profile) { p.SchedulerName = "GPU" }, `"GPU"`},
		"no weight":                         {func(p *Profile) { p.NUMAWeight = 0 }, "want 1 to"},
		"others that outvote the best link": {func(p *Profile) { p.TopologyWeight = 22 }, "want 23 or more"},
		"a policy nobody has":               {func(p *Profile) { p.DefaultPolicy = "tight" }, `"tight"`},
		"an affinity nobody has":            {func(p *Profile) { p.DefaultAffinity = "near" }, `"near"`},
		"a bonus above 100":                 {func(p *Profile) { p.SameNUMABonus = 101 }, "bonus 101"},
		"narrowing below 0":                 {func(p *Profile) { p.NarrowTo = -1 }, "-1"},
		"a treatment nobody has":            {func(p *Profile) { p.UnenforcedNodes = "Use" }, `"Use"`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := ProfileFor(Mixed)
			if err != nil {
				t.Fatal(err)
			}
			tc.change(p)
			if _, err := p.Write(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
