// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"

	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Mixed is a profile for training and inference on the same nodes: the shipped one.
const Mixed Workload = "mixed"

// Names of nvtopo's plugins in the shipped profile, as in pkg/apis/config, which links the scheduler.
const (
	topologyAware = "TopologyAware"
	numaAffinity  = "NUMAAffinity"
	gangPlacement = "GangPlacement" // scores nothing
	fairSort      = "FairSort"      // scores nothing
)

// otherScorers is the total weight of kube-scheduler's scorers that the shipped profile does not list:
// VolumeBinding has the default, 1.
const otherScorers = 1

// Profile holds the settings by which the scheduler weighs nodes. ProfileFor has values for a workload.
type Profile struct {
	Workload      Workload
	SchedulerName string
	OnBinding     bool // annotations are written with the Binding, not in a PATCH before it

	TopologyWeight, NUMAWeight int32 // of the plugins, against other plugins
	// Shares of the score of TopologyAware, each 0 to 1.
	BandwidthWeight, LatencyWeight, FragmentationWeight float64
	DefaultPolicy                                       string // of pods that name none
	DefaultAffinity                                     string // numa-affinity of pods that name none
	SameNUMABonus, CrossNUMAPenalty                     int64  // points of the score of NUMAAffinity, 0 to 100
	NarrowTo                                            int32  // greatest number of nodes in a cycle; 0: all
	UnenforcedNodes                                     string // Allow, WholeNodeOnly or Refuse
}

// ProfileFor returns the profile of a workload.
func ProfileFor(w Workload) (*Profile, error) {
	p := &Profile{
		Workload: w, SchedulerName: release.Profile, TopologyWeight: 25, NUMAWeight: 3,
		BandwidthWeight: 0.4, LatencyWeight: 0.3, FragmentationWeight: 0.3,
		DefaultPolicy: nvtopo.PolicyBestEffort.String(), DefaultAffinity: "none",
		SameNUMABonus: 50, CrossNUMAPenalty: 20, NarrowTo: 16, UnenforcedNodes: "Allow",
	}
	switch w {
	case Mixed:
	case Training:
		// The time of a step is that of the all-reduce, which depends on the ring's bandwidth.
		p.BandwidthWeight, p.LatencyWeight, p.FragmentationWeight = 0.6, 0.2, 0.2
	case Inference:
		// Small groups and small messages: latency, little fragmentation, and CPUs nearby.
		p.BandwidthWeight, p.LatencyWeight, p.FragmentationWeight = 0.2, 0.4, 0.4
		p.NUMAWeight, p.TopologyWeight, p.DefaultAffinity = 10, 35, "preferred"
	default:
		return nil, fmt.Errorf("workload %q: want %s, %s or %s", w, Training, Inference, Mixed)
	}
	return p, nil
}

// Config returns the shipped configuration with this profile. An error is about a field of p.
func (p *Profile) Config() (*schedulerv1.KubeSchedulerConfiguration, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	path := manifests.SchedulerConfigPath
	if p.OnBinding {
		path = manifests.SchedulerConfigBindingPath
	}
	data, err := manifests.FS.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the shipped configuration: %w", err)
	}
	c := &schedulerv1.KubeSchedulerConfiguration{}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, fmt.Errorf("decode the shipped configuration: %w", err)
	}
	if len(c.Profiles) != 1 || c.Profiles[0].Plugins == nil {
		return nil, errors.New("the shipped configuration has no single profile with plugins")
	}
	profile := &c.Profiles[0]
	profile.SchedulerName = &p.SchedulerName
	enabled := profile.Plugins.MultiPoint.Enabled
	others := int32(otherScorers)
	for i := range enabled {
		switch enabled[i].Name {
		case gangPlacement, fairSort:
			continue
		case topologyAware:
			enabled[i].Weight = &p.TopologyWeight
			continue
		case numaAffinity:
			enabled[i].Weight = &p.NUMAWeight
		}
		others += *cmp.Or(enabled[i].Weight, new(int32(1))) // kube-scheduler's default
	}
	if err := nodeindex.CheckWeight(int64(p.TopologyWeight), int64(others)); err != nil {
		return nil, err
	}
	return c, p.setArgs(profile)
}

// Write returns Config as YAML, with its reasons as comments.
func (p *Profile) Write() ([]byte, error) {
	c, err := p.Config()
	if err != nil {
		return nil, err
	}
	return document([]string{
		"Configuration of nvtopo-scheduler for " + string(p.Workload) + ", made of the shipped one.",
		fmt.Sprintf("TopologyAware gives nodes with the best links %d to 100 points and other nodes none; with its", nodeindex.LeastBest),
		fmt.Sprintf("weight of %d it outvotes all other scorers together.", p.TopologyWeight),
		"Pods choose the profile by schedulerName: " + p.SchedulerName + ".",
	}, c, "pluginConfig")
}

func (p *Profile) check() error {
	if err := p.checkShares(); err != nil {
		return err
	}
	if err := p.checkPoints(); err != nil {
		return err
	}
	_, policyErr := nvtopo.ParsePolicy(p.DefaultPolicy)
	_, affinityErr := podrequest.ParseAffinity(p.DefaultAffinity)
	switch {
	case len(validation.IsDNS1123Subdomain(p.SchedulerName)) > 0:
		return fmt.Errorf("scheduler name %q: want lower-case letters, digits, dots and hyphens", p.SchedulerName)
	case policyErr != nil:
		return fmt.Errorf("default policy: %w", policyErr)
	case affinityErr != nil:
		return fmt.Errorf("default affinity: %w", affinityErr)
	case p.NarrowTo < 0:
		return fmt.Errorf("narrowing to %d nodes: want 0 or more", p.NarrowTo)
	case p.UnenforcedNodes != "Allow" && p.UnenforcedNodes != "WholeNodeOnly" && p.UnenforcedNodes != "Refuse":
		return fmt.Errorf("unenforced nodes %q: want Allow, WholeNodeOnly or Refuse", p.UnenforcedNodes)
	}
	return nil
}

// checkPoints checks the weights and points of the plugins' scores.
func (p *Profile) checkPoints() error {
	const maxWeight = math.MaxInt16 // far from kube-scheduler's bound
	switch {
	case p.TopologyWeight < 1 || p.TopologyWeight > maxWeight || p.NUMAWeight < 1 || p.NUMAWeight > maxWeight:
		return fmt.Errorf("weights %d and %d of the plugins: want 1 to %d", p.TopologyWeight, p.NUMAWeight, maxWeight)
	case p.SameNUMABonus < 0 || p.SameNUMABonus > 100 || p.CrossNUMAPenalty < 0 || p.CrossNUMAPenalty > 100:
		return fmt.Errorf("bonus %d and penalty %d of NUMA nodes: want 0 to 100", p.SameNUMABonus, p.CrossNUMAPenalty)
	}
	return nil
}

func (p *Profile) checkShares() error {
	shares := []float64{p.BandwidthWeight, p.LatencyWeight, p.FragmentationWeight}
	sum := 0.0
	for _, s := range shares {
		if !(s >= 0 && s <= 1) {
			return fmt.Errorf("shares %v of bandwidth, latency and fragmentation: want 0 to 1 each", shares)
		}
		sum += s
	}
	if sum == 0 {
		return errors.New("shares of bandwidth, latency and fragmentation: not all may be 0")
	}
	return nil
}

// setArgs adds the arguments of nvtopo's two plugins to the shipped ones.
func (p *Profile) setArgs(profile *schedulerv1.KubeSchedulerProfile) error {
	args := map[string]map[string]any{
		topologyAware: {
			"bandwidthWeight": p.BandwidthWeight, "latencyWeight": p.LatencyWeight, "fragmentationWeight": p.FragmentationWeight,
			"defaultPolicy": p.DefaultPolicy, "narrowTo": p.NarrowTo, "unenforcedNodes": p.UnenforcedNodes,
		},
		numaAffinity: {
			"sameNUMABonus": p.SameNUMABonus, "crossNUMAPenalty": p.CrossNUMAPenalty, "defaultAffinity": p.DefaultAffinity,
		},
	}
	for i := range profile.PluginConfig {
		c := &profile.PluginConfig[i]
		ours := args[c.Name]
		if ours == nil {
			continue
		}
		all := map[string]any{}
		if err := json.Unmarshal(c.Args.Raw, &all); err != nil {
			return fmt.Errorf("decode the shipped arguments of %s: %w", c.Name, err)
		}
		maps.Copy(all, ours)
		raw, err := json.Marshal(all)
		if err != nil {
			return fmt.Errorf("write the arguments of %s: %w", c.Name, err)
		}
		c.Args = runtime.RawExtension{Raw: raw}
		delete(args, c.Name)
	}
	if len(args) > 0 {
		return fmt.Errorf("the shipped configuration has no arguments of %v", args)
	}
	return nil
}
