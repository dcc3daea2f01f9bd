// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nvtopo/nvtopo/internal/release"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Profile is a scheduler whose pods are explained.
type Profile struct {
	SchedulerNames []string
	Options        podrequest.Options
	Unenforced     placement.Unenforced
	AllowNoGraph   bool
	CountStale     bool
	WantCPUs       bool
	Order          nodeindex.Order // how nodes are compared
	Weights        nvtopo.Weights  // of the GPUs that stay free
	// Assumed: no scheduler has published this profile; it is the shipped one under the name.
	Assumed bool
}

// ShippedProfile is the shipped configuration.
func ShippedProfile() Profile {
	return Profile{
		SchedulerNames: []string{release.Profile},
		Options: podrequest.Options{
			Resources: []string{topologyv1alpha1.DefaultResource}, DefaultPolicy: nvtopo.PolicyBestEffort, Supported: podrequest.AllPolicies(),
			HardwareLabels: topologyv1alpha1.DefaultHardwareLabels(),
		},
		WantCPUs: true, Assumed: true,
		Order:   nodeindex.DefaultOrder(),
		Weights: nvtopo.DefaultWeights(),
	}
}

// Published are the profiles that a scheduler has published, each with its one name. One of a profile
// without the plugin that compares nodes has the shipped order.
func Published(p *diagnosis.Profiles) ([]Profile, error) {
	if p == nil {
		return nil, nil
	}
	out := make([]Profile, len(p.Profiles))
	for i := range p.Profiles {
		var err error
		if out[i], err = published(&p.Profiles[i]); err != nil {
			return nil, fmt.Errorf("ConfigMap %s: profiles[%d] %q: %w", diagnosis.ProfilesName, i, p.Profiles[i].Name, err)
		}
	}
	return out, nil
}

func published(d *diagnosis.Profile) (Profile, error) {
	p := ShippedProfile()
	p.SchedulerNames, p.Options.Resources, p.Assumed = []string{d.Name}, d.Resources, false
	p.AllowNoGraph, p.CountStale, p.WantCPUs = d.AllowNoGraph, d.CountStale, d.CPUSet
	var errs []error
	if d.DefaultAffinity != "" {
		errs = append(errs, read(&p.Options.DefaultAffinity, "defaultAffinity", d.DefaultAffinity, podrequest.ParseAffinity))
	}
	o := d.Order
	if o == nil {
		return p, errors.Join(errs...)
	}
	p.Options.HardwareLabels, p.Options.Supported = d.HardwareLabels, make([]nvtopo.Policy, len(d.SupportedPolicies))
	for i, name := range d.SupportedPolicies {
		errs = append(errs, read(&p.Options.Supported[i], fmt.Sprintf("supportedPolicies[%d]", i), name, nvtopo.ParsePolicy))
	}
	errs = append(errs,
		read(&p.Options.DefaultPolicy, "defaultPolicy", d.DefaultPolicy, nvtopo.ParsePolicy),
		read(&p.Unenforced, "unenforcedNodes", d.UnenforcedNodes, placement.ParseUnenforced),
		read(&p.Order.Singles, "order.singleGPUs", o.SingleGPUs, nodeindex.ParseSingles),
	)
	p.Order.Weights = nodeindex.Weights{Bandwidth: o.BandwidthWeight, Latency: o.LatencyWeight, Fragmentation: o.FragmentationWeight}
	p.Order.Tolerance, p.Order.Headroom, p.Weights = o.TimeTolerance, o.LargerPodsHeadroom, nvtopo.WeightsOf(d.ResidualWeights)
	return p, errors.Join(errs...)
}

// read parses a value; the error names its field.
func read[T any](to *T, field, value string, parse func(string) (T, error)) error {
	v, err := parse(value)
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	*to = v
	return nil
}

// UseProfiles says by which profiles pods are explained: those that a scheduler has published, or the
// shipped one where none is. names are schedulers whose pods are explained beside, or in place of the shipped
// one, and resources are those whose devices all of them choose; nil: as the profiles say. Where what is
// published cannot be read, the shipped profile is taken, and the error says why.
func (w *World) UseProfiles(names, resources []string) error {
	all, err := Published(w.Published)
	if err != nil {
		all = nil
	}
	w.Profiles = all
	for _, name := range names {
		if !slices.ContainsFunc(w.Profiles, func(p Profile) bool { return slices.Contains(p.SchedulerNames, name) }) {
			w.Profiles = append(w.Profiles, assumed(name))
		}
	}
	if len(w.Profiles) == 0 {
		w.Profiles = []Profile{ShippedProfile()}
	}
	if resources != nil {
		for i := range w.Profiles {
			w.Profiles[i].Options.Resources = resources
		}
	}
	return err
}

// assumed is the shipped profile under another name.
func assumed(name string) Profile {
	p := ShippedProfile()
	p.SchedulerNames = []string{name}
	return p
}
