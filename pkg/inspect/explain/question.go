// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// question is a pod that asks for a node.
type question struct {
	pod     *v1.Pod
	profile *Profile // of the pod
	demand  *placement.Demand
	shape   placement.Shape
	// members are those of its gang that wait, and group the annotations of its PodGroup; nil of a single
	// pod.
	members []*v1.Pod
	group   map[string]string
}

// resource is the first that the pod asks devices of, empty if none.
func (q *question) resource() string {
	if !q.demand.HasGPUs() {
		return ""
	}
	return q.demand.Resources[0].Name
}

// schedulers are those whose pods are explained.
type schedulers struct {
	profiles []Profile
	// names are the profiles', and those under which the scheduler has placed pods that are there.
	names []string
}

// schedulersOf finds out under which other names the scheduler has placed pods: by their allocations,
// which nobody else may write.
func schedulersOf(w *World) *schedulers {
	s := &schedulers{profiles: w.Profiles}
	for i := range s.profiles {
		s.names = append(s.names, s.profiles[i].SchedulerNames...)
	}
	for i := range w.Pods {
		p := &w.Pods[i]
		if p.Spec.NodeName != "" && p.Annotations[allocation.Key] != "" && !s.ours(p) && (usage.AnnotationReader{}).Allocation(p, p.Spec.NodeName) != nil {
			s.names = append(s.names, p.Spec.SchedulerName)
		}
	}
	return s
}

// ours reports whether a scheduler of the profiles places the pod.
func (s *schedulers) ours(p *v1.Pod) bool { return slices.Contains(s.names, p.Spec.SchedulerName) }

// resources are those whose devices some profile chooses.
func (s *schedulers) resources() (out []string) {
	for i := range s.profiles {
		for _, r := range s.profiles[i].Options.Resources {
			if !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// profileOf is that of the pod's scheduler; the first if its scheduler has none.
func (s *schedulers) profileOf(p *v1.Pod) *Profile {
	for i := range s.profiles {
		if slices.Contains(s.profiles[i].SchedulerNames, p.Spec.SchedulerName) {
			return &s.profiles[i]
		}
	}
	return &s.profiles[0]
}

// demandOf reads what a pod asks for. Of a pod of another scheduler only numbers count.
func (s *schedulers) demandOf(p *v1.Pod) (*placement.Demand, error) {
	profile := s.profileOf(p)
	options := profile.Options
	if !s.ours(p) {
		options.Resources = nil
	}
	r, err := podrequest.Parse(p, &options)
	if err != nil {
		return nil, err
	}
	return &placement.Demand{
		Request: r, Unenforced: profile.Unenforced, AllowNoGraph: profile.AllowNoGraph, CountStale: profile.CountStale, WantCPUs: profile.WantCPUs,
	}, nil
}

func (s *schedulers) question(pod *v1.Pod) (*question, error) {
	d, err := s.demandOf(pod)
	if err != nil {
		return nil, err
	}
	shape, err := placement.NewShape(pod, d)
	if err != nil {
		return nil, err
	}
	return &question{pod: pod, profile: s.profileOf(pod), demand: d, shape: shape}, nil
}
