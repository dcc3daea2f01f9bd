// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/cli/generate"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/plugins/fairsort"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// TestLinkDominance: no other score outvotes the links. The test compares the worst node between which the
// score decides with one behind these that has all points of every other scorer of the shipped profiles.
func TestLinkDominance(t *testing.T) {
	for _, path := range []string{manifests.SchedulerConfigPath, manifests.SchedulerConfigBindingPath} {
		t.Run(path, func(t *testing.T) {
			own, others := scorers(t, path)
			if own == 0 || len(others) < 10 {
				t.Fatalf("weight %d beside the scorers %v: the profile is not read as a scheduler does", own, others)
			}
			var sum int64
			for _, weight := range others {
				sum += int64(weight)
			}
			p := &Plugin{narrowing: candidates.Narrowing{Order: nodeindex.DefaultOrder()}}
			best := nodeindex.Best{Ring: 900_000_000, Latency: 1_000, Lost: 1}
			worst := nodeindex.Offer{Ring: 1, Latency: 1 << 40, Lost: 1, FreeAfter: 64}
			scores := fwk.NodeScoreList{
				{Name: "worst of the band", Score: inBand(p, &worst, &best)},
				{Name: "best of the band", Score: inBand(p, &nodeindex.Offer{Ring: 900_000_000, Latency: 1_000}, &best)},
				{Name: "of a lesser band", Score: 0},
			}
			if status := p.NormalizeScore(t.Context(), framework.NewCycleState(), nil, scores); !status.IsSuccess() {
				t.Fatal(status)
			}
			if step := (scores[0].Score - scores[2].Score) * int64(own); step <= sum*fwk.MaxNodeScore {
				t.Errorf("the band is worth %d points more (weight %d), all other scorers %d: %v", step, own, sum*fwk.MaxNodeScore, others)
			}
		})
	}
}

// inBand is the Score of a node between which it decides.
func inBand(p *Plugin, o *nodeindex.Offer, best *nodeindex.Best) int64 {
	return ranked(p.narrowing.Order.Weights.Raw(o, best), 0)
}

// TestWeightsAtStart: the scheduler starts with a weight exactly if nvtopo generate scheduler-profile
// writes it, and else reports which is needed.
func TestWeightsAtStart(t *testing.T) {
	shipped, err := manifests.FS.ReadFile(manifests.SchedulerConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		topology, numa string
		want           string // in the refusal; empty: it starts
	}{
		"the shipped weights":    {"25", "3", ""},
		"just enough":            {"23", "3", ""},
		"one less":               {"22", "3", "weight 22 of TopologyAware: want 23 or more, or the other plugins (weights 18 in all) outvote the best links"},
		"a heavier NUMAAffinity": {"25", "6", "want 27 or more"},
		"a heavier NUMAAffinity, and as much more": {"27", "6", ""},
		"that of an earlier release":               {"5", "3", "want 23 or more"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text := strings.NewReplacer("TopologyAware, weight: 25", "TopologyAware, weight: "+tc.topology, "NUMAAffinity, weight: 3", "NUMAAffinity, weight: "+tc.numa).Replace(string(shipped))
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			profile, err := generate.ProfileFor(generate.Mixed)
			if err != nil {
				t.Fatal(err)
			}
			profile.TopologyWeight, profile.NUMAWeight = parse(t, tc.topology), parse(t, tc.numa)
			_, written := profile.Write()
			for who, err := range map[string]error{"the scheduler": starts(t, path), "generate": written} {
				if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s says %v, want %q", who, err, tc.want)
				}
			}
		})
	}
}

func parse(t *testing.T, weight string) int32 {
	t.Helper()
	n, err := strconv.ParseInt(weight, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// starts makes the calls of the scheduler's start to the plugins of a configuration.
func starts(t *testing.T, path string) error {
	t.Helper()
	var errs []error
	for _, p := range frameworkOf(t, path).EnqueueExtensions() {
		_, err := p.EventsToRegister(t.Context())
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// scorers returns the weight of TopologyAware in a configuration and those of all other plugins that
// score, by name.
func scorers(t *testing.T, path string) (own int32, others map[string]int32) {
	t.Helper()
	others = map[string]int32{}
	for _, p := range frameworkOf(t, filepath.Join("..", "..", "..", "manifests", filepath.FromSlash(path))).ListPlugins().Score.Enabled {
		if p.Name == Name {
			own = p.Weight
		} else {
			others[p.Name] = p.Weight
		}
	}
	return own, others
}

// frameworkOf builds the framework of a configuration's first profile.
func frameworkOf(t *testing.T, path string) framework.Framework {
	t.Helper()
	logger, ctx := ktesting.NewTestContext(t)
	metrics.Register()
	cfg, err := options.LoadConfigFromFile(logger, path)
	if err != nil {
		t.Fatal(err)
	}
	shared := lifecycle.NewShared(clock.RealClock{})
	shared.ServeDebug(func(context.Context, fwk.Handle, lifecycle.Debug, *nodestate.State) error { return nil })
	registry := plugins.NewInTreeRegistry()
	registry[Name], registry[numa.Name], registry[gang.Name] = New(shared), numa.New(shared), gang.New(gang.NewProcess(shared))
	registry[fairsort.Name] = fairsort.New(fairsort.NewTurns(clock.RealClock{}))
	client := fake.NewClientset()
	fw, err := frameworkruntime.NewFramework(ctx, registry, &cfg.Profiles[0],
		frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)),
		frameworkruntime.WithSnapshotSharedLister(schedcache.NewEmptySnapshot()),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()))
	if err != nil {
		t.Fatal(err)
	}
	return fw
}
