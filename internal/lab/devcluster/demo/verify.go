// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

// report checks all placements and describes every pod.
func (r *run) report() *Report {
	out := &Report{Results: make([]Result, len(r.requests))}
	var placements []placement
	var owners []int // result of each placement
	for i := range r.requests {
		req := &r.requests[i]
		res := &out.Results[i]
		*res = Result{
			Pod: req.name, Asked: req.total(), Wishes: req.wishes(), Impossible: req.impossible,
			GPUs: []int{}, UUIDs: []string{}, BestGPUs: []int{}, BestNodes: []string{}, NUMANodes: []int{},
		}
		p, ok := r.examine(req, r.pods[req.name], res)
		if ok {
			placements, owners = append(placements, p), append(owners, i)
		}
	}
	for i, v := range check(r.graphs, placements) {
		res, g := &out.Results[owners[i]], r.graphs[placements[i].node]
		res.Problem, res.BestNodes = cmp.Or(res.Problem, v.problem), append(res.BestNodes, v.nodes...)
		if v.possible {
			_, kBps := oracle.Ring(g, v.best)
			res.BestGPUs, res.BestRingBandwidthGBps = indices(g, v.best), nvtopo.GBps(kBps)
		}
	}
	return out
}

// examine describes one pod; ok reports whether it has GPUs to check.
func (r *run) examine(req *request, pod *v1.Pod, res *Result) (p placement, ok bool) {
	if pod.Spec.NodeName == "" {
		res.Reason = refusal(pod)
		switch {
		case !req.impossible:
			res.Problem = "it was not placed"
		case res.Reason == "":
			res.Problem = "the scheduler gave no reason for not placing it"
		}
		return placement{}, false
	}
	res.Node, res.Machine = pod.Spec.NodeName, r.machines[pod.Spec.NodeName]
	g := r.graphs[pod.Spec.NodeName]
	o, err := observe(*req, pod)
	if err == nil && g != nil {
		p, err = o.placement(g)
	}
	switch {
	case err != nil:
		res.Problem = err.Error()
		return placement{}, false
	case g == nil:
		res.Problem = "its node is none of the demo's"
		return placement{}, false
	case req.impossible:
		res.Problem = "it was placed although no machine can serve it"
	}
	o.fill(res, g, &p)
	res.Problem = cmp.Or(res.Problem, o.disagreement(g, &p))
	released := r.released[req.name]
	p.releaseFrom, p.releaseBy = released[0], released[1]
	return p, true
}
