// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// run is the state of one demo.
type run struct {
	*Runner

	graphs   map[string]*nvtopo.Graph // node name -> graph, from the catalogue
	machines map[string]string        // node name -> machine
	requests []request
	pods     map[string]*v1.Pod      // pod name -> as last seen bound, or refused
	released map[string][2]time.Time // pod name -> when it gave its GPUs back
}

// Run creates the waves of pods on a booted cluster and checks every placement. It returns an error if
// the demo could not be carried through; findings of the check are in the report.
func Run(ctx context.Context, c *devcluster.Cluster, progress io.Writer) (*Report, error) {
	runner, err := NewRunner(c, progress)
	if err != nil {
		return nil, err
	}
	r := &run{
		Runner: runner, graphs: map[string]*nvtopo.Graph{}, machines: map[string]string{},
		pods: map[string]*v1.Pod{}, released: map[string][2]time.Time{},
	}
	for _, n := range Nodes() {
		if r.graphs[n.Name], err = n.Graph(); err != nil {
			return nil, fmt.Errorf("the node's graph: %w", err)
		}
		r.machines[n.Name] = n.Machine
	}
	if err := runner.WarmUp(ctx, Nodes()); err != nil {
		return nil, err
	}
	waves := workload()
	for i := range waves {
		if err := r.Play(ctx, r.scenes(&waves[i], fmt.Sprintf("wave %d of %d: %s", i+1, len(waves), waves[i].title), fmt.Sprintf("barrier-%d", i))...); err != nil {
			return nil, err
		}
	}
	if err := r.refresh(ctx); err != nil {
		return nil, err
	}
	report := r.report()
	if wrong := r.Problems(); len(wrong) > 0 && len(report.Problems()) == 0 { // else the report has it with the pod
		return nil, errors.New(wrong[0])
	}
	return report, nil
}

// scenes returns the scenes of a wave: pods that end, and then those that come.
func (r *run) scenes(w *wave, title, barrier string) []Scene {
	var out []Scene
	if len(w.finish) > 0 {
		out = append(out, Scene{
			Title: fmt.Sprintf("%s\n  %d pods finish and give their GPUs back", title, len(w.finish)), Finish: Named(w.finish...),
			Until: []Condition{*must(r.InPhase(v1.PodSucceeded, w.finish...))},
			Show: func(ctx context.Context, began time.Time) error {
				if err := r.pass(ctx, barrier); err != nil {
					return err
				}
				for _, name := range w.finish {
					r.released[name] = [2]time.Time{began, r.Clock.Now()}
				}
				return nil
			},
		})
		title = ""
	}
	come := Scene{Title: title, Show: func(_ context.Context, began time.Time) error {
		fmt.Fprintf(r.Progress, "  %d pods decided in %.1f s\n", len(w.pods), r.Clock.Since(began).Seconds())
		return nil
	}}
	for i := range w.pods {
		p := &w.pods[i]
		come.Create = append(come.Create, p.pod())
		come.Until = append(come.Until, Condition{What: "pod " + p.name + " runs", Instead: func(ctx context.Context) (string, error) {
			pod, err := r.Pod(ctx, p.name)
			if err != nil {
				return "", err
			}
			if r.pods[p.name] = pod; pod.Status.Phase == v1.PodRunning || p.impossible && refusal(pod) != "" {
				return "", nil
			}
			return "it is " + string(pod.Status.Phase) + " " + refusal(pod), nil
		}})
	}
	r.requests = append(r.requests, w.pods...)
	return append(out, come)
}

// refresh reads the pods without a node once more: one of them may have got one when others finished, and
// its GPUs are then in use.
func (r *run) refresh(ctx context.Context) error {
	for name, pod := range r.pods {
		if pod.Spec.NodeName != "" {
			continue
		}
		p, err := r.Pod(ctx, name)
		if err != nil {
			return err
		}
		r.pods[name] = p
	}
	return nil
}

// refusal returns the scheduler's reason for not placing a pod, or "".
func refusal(pod *v1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}
