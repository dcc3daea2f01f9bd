// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"maps"
	"slices"
	"sync"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// Profiles are the scheduler profiles that use this package's plugins.
type Profiles struct {
	index     *candidates.Index            // nodes, by the accelerators that profiles serve
	mu        sync.Mutex                   // guards all below
	served    map[string]struct{}          // by name
	gangs     map[string]struct{}          // by name, those that place gangs
	described map[string]diagnosis.Profile // by name; the descriptions by its plugins
}

func newProfiles(index *candidates.Index) *Profiles {
	return &Profiles{index: index, served: map[string]struct{}{}, gangs: map[string]struct{}{}, described: map[string]diagnosis.Profile{}}
}

// Serve registers a profile of this name as serving these accelerators.
func (p *Profiles) Serve(profile string, resources []string) {
	p.mu.Lock()
	p.served[profile] = struct{}{}
	p.mu.Unlock()
	p.index.AddResources(resources...)
}

// Serves reports whether the profile is registered.
func (p *Profiles) Serves(profile string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.served[profile]
	return ok
}

// ServeGangs registers a profile of this name as placing gangs: a member is tried when its gang is.
func (p *Profiles) ServeGangs(profile string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gangs[profile] = struct{}{}
}

// servesGangs reports whether a profile places gangs.
func (p *Profiles) servesGangs(profile string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.gangs[profile]
	return ok
}

// Describe lets a plugin add to the description of its profile.
func (p *Profiles) Describe(profile string, add func(*diagnosis.Profile)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.described[profile]
	d.Name = profile
	add(&d)
	p.described[profile] = d
}

// Profiles returns the served profiles in order.
func (p *Profiles) Profiles() []diagnosis.Profile { return p.describe(p.index.Resources()) }

// describe returns the served profiles in order. A profile without a description has the given resources.
func (p *Profiles) describe(resources []string) []diagnosis.Profile {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []diagnosis.Profile
	for _, name := range slices.Sorted(maps.Keys(p.served)) {
		d := p.described[name]
		if d.Name = name; d.Resources == nil {
			d.Resources = resources
		}
		out = append(out, d)
	}
	return out
}
