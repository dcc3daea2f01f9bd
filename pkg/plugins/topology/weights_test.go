// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"path/filepath"
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
	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
)

// TestLinkDominance: no other score outvotes the links. It holds the worst node between which the
// score decides against one behind these that has all points of every other scorer of the shipped
// profiles.
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

// inBand is what Score gives a node between which it decides.
func inBand(p *Plugin, o *nodeindex.Offer, best *nodeindex.Best) int64 {
	return ranked(p.narrowing.Order.Weights.Raw(o, best), 0)
}

// scorers builds the framework of a configuration and returns our weight and those of
// all other plugins that score, by name.
func scorers(t *testing.T, path string) (own int32, others map[string]int32) {
	t.Helper()
	logger, ctx := ktesting.NewTestContext(t)
	metrics.Register()
	cfg, err := options.LoadConfigFromFile(logger, filepath.Join("..", "..", "..", "manifests", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	shared := lifecycle.NewShared(clock.RealClock{})
	registry := plugins.NewInTreeRegistry()
	registry[Name], registry[numa.Name], registry[gang.Name] = New(shared), numa.New(shared), gang.New(gang.NewProcess(shared))
	client := fake.NewClientset()
	fw, err := frameworkruntime.NewFramework(ctx, registry, &cfg.Profiles[0],
		frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)),
		frameworkruntime.WithSnapshotSharedLister(schedcache.NewEmptySnapshot()),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()))
	if err != nil {
		t.Fatal(err)
	}
	others = map[string]int32{}
	for _, p := range fw.ListPlugins().Score.Enabled {
		if p.Name == Name {
			own = p.Weight
		} else {
			others[p.Name] = p.Weight
		}
	}
	return own, others
}
