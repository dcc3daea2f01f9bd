// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"slices"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// promise is the constraints for the pods of gangs, by PodSet. Single pods have none.
type promise struct {
	labels map[string]map[string]string // node labels
	models map[string]string            // GPU models
}

// promise restricts the pods of each gang to the found domain, and to its GPU model. Without the model
// the scheduler, which may take two promised gangs in another order, could give one of them the model
// that was promised to the other, which then has no place.
func (s *Snapshot) promise(a *ask, found *fitted) promise {
	out := promise{labels: map[string]map[string]string{}, models: map[string]string{}}
	for i, g := range a.gangs {
		labels := s.labelsOf(found.plans[i])
		for _, k := range g.kinds {
			out.labels[k.podSet] = labels
		}
		for number, model := range s.modelsOf(g, found.plans[i]) {
			out.models[g.kinds[number].podSet] = model
		}
	}
	return out
}

// modelsOf returns the GPU model that the members of each kind have in a plan. Kinds with several models
// or an unknown one are left out, and so are gangs that may have any.
func (s *Snapshot) modelsOf(g *gang, plan *fabric.Plan) map[int]string {
	if g.Wishes.MixedModels {
		return nil
	}
	found := map[int][]string{} // by index of the kind
	for rank, pod := range g.Members.Live {
		number := g.of[pod.UID]
		k, n := g.kinds[number], s.nodes[plan.Nodes[rank]]
		if !k.demand.HasGPUs() || n.graph == nil {
			continue
		}
		accel := n.graph.Accel(k.demand.Resources[0].Name)
		if accel == nil || accel.Graph == nil {
			continue
		}
		for at := range accel.Graph.GPUs {
			if m := accel.Graph.GPUs[at].Model; plan.Sets[rank].Has(at) && !slices.Contains(found[number], m) {
				found[number] = append(found[number], m)
			}
		}
	}
	out := map[int]string{}
	for number, models := range found {
		if len(models) == 1 && models[0] != "" {
			out[number] = models[0]
		}
	}
	return out
}

// labelsOf returns the node labels of a plan's domain. Where another domain has the same name, the
// labels of the enclosing domains are added.
func (s *Snapshot) labelsOf(plan *fabric.Plan) map[string]string {
	depth := s.commonDepth(plan)
	if depth == 0 {
		return nil
	}
	at := plan.Domains[depth][0]
	own := &s.tree.Domains(depth)[at]
	level := func(d int) gangrequest.Level { return s.levels[d-1] }
	out := map[string]string{level(depth).NodeLabel: own.Name}
	others := 0
	for i := range s.tree.Domains(depth) {
		if s.tree.Domains(depth)[i].Name == own.Name {
			others++
		}
	}
	for d := depth - 1; d > 0 && others > 1; d-- {
		if name := s.tree.Domains(d)[s.tree.DomainOf(d, own.First)].Name; name != "" {
			out[level(d).NodeLabel] = name
		}
	}
	return out
}

// updates returns an entry for each PodSet, as Kueue requires. Keys that the job itself sets are left
// out: Kueue refuses duplicates.
func updates(w *kueue.Workload, p promise) []kueue.PodSetUpdate {
	out := make([]kueue.PodSetUpdate, 0, len(w.Spec.PodSets))
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		u := kueue.PodSetUpdate{Name: ps.Name}
		for key, value := range p.labels[ps.Name] {
			if _, has := ps.Template.Spec.NodeSelector[key]; has {
				continue
			}
			if u.NodeSelector == nil {
				u.NodeSelector = map[string]string{}
			}
			u.NodeSelector[key] = value
		}
		if model := p.models[ps.Name]; model != "" {
			if _, has := ps.Template.Annotations[podrequest.PromisedModelKey]; !has {
				u.Annotations = map[string]string{podrequest.PromisedModelKey: model}
			}
		}
		out = append(out, u)
	}
	return out
}
