// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"maps"
	"slices"
	"sync"

	"github.com/nvtopo/nvtopo/pkg/diagnosis"
)

// profiles are the scheduler profiles whose pods are ours.
type profiles struct {
	mu        sync.Mutex                   // guards all below
	served    map[string]struct{}          // by name
	gangs     map[string]struct{}          // by name, those that place gangs
	described map[string]diagnosis.Profile // by name; what its plugins said of themselves
}

func newProfiles() *profiles {
	return &profiles{served: map[string]struct{}{}, gangs: map[string]struct{}{}, described: map[string]diagnosis.Profile{}}
}

// Serve says that a profile of this name takes pods, for these accelerators.
func (s *State) Serve(profile string, resources []string) {
	s.profiles.mu.Lock()
	s.profiles.served[profile] = struct{}{}
	s.profiles.mu.Unlock()
	s.index.AddResources(resources...)
}

// Serves reports whether the pods of a profile are ours.
func (s *State) Serves(profile string) bool {
	s.profiles.mu.Lock()
	defer s.profiles.mu.Unlock()
	_, ok := s.profiles.served[profile]
	return ok
}

// ServeGangs says that a profile of this name places gangs: a member is tried when its gang is.
func (s *State) ServeGangs(profile string) {
	s.profiles.mu.Lock()
	defer s.profiles.mu.Unlock()
	s.profiles.gangs[profile] = struct{}{}
}

// servesGangs reports whether a profile places gangs.
func (s *State) servesGangs(profile string) bool {
	s.profiles.mu.Lock()
	defer s.profiles.mu.Unlock()
	_, ok := s.profiles.gangs[profile]
	return ok
}

// Describe has a plugin add to what is shown of its profile.
func (s *State) Describe(profile string, add func(*diagnosis.Profile)) {
	s.profiles.mu.Lock()
	defer s.profiles.mu.Unlock()
	d := s.profiles.described[profile]
	d.Name = profile
	add(&d)
	s.profiles.described[profile] = d
}

// Profiles are the served profiles in order.
func (s *State) Profiles() []diagnosis.Profile { return s.profiles.describe(s.index.Resources()) }

// describe returns the served profiles in order. Of one that nobody described it says which
// accelerators there are.
func (p *profiles) describe(resources []string) []diagnosis.Profile {
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
