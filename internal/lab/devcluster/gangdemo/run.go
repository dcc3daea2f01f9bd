// SPDX-License-Identifier: Apache-2.0

package gangdemo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// run is the state of one demo.
type run struct {
	*demo.Runner

	nodes  []devcluster.NodeSpec
	graphs map[string]*nvtopo.Graph
	places map[string]place
}

// Run runs all scenes on a booted cluster of Nodes. It returns an error if the demo could not be carried
// through; problems are in the pictures.
func Run(ctx context.Context, c *devcluster.Cluster, progress io.Writer) (*demo.Pictures, error) {
	runner, err := demo.NewRunner(c, progress)
	if err != nil {
		return nil, err
	}
	r := &run{Runner: runner, nodes: Nodes(), graphs: map[string]*nvtopo.Graph{}, places: places()}
	r.Verdict = "every gang is whole and where it was promised, no GPU has two owners"
	for i := range r.nodes {
		if r.graphs[r.nodes[i].Name], err = r.nodes[i].Graph(); err != nil {
			return nil, fmt.Errorf("the node's graph: %w", err)
		}
	}
	if err := r.WarmUp(ctx, r.nodes); err != nil {
		return nil, err
	}
	urgent := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgentClass}, Value: 10}
	if err := r.Play(ctx, demo.Scene{Create: []client.Object{urgent}}); err != nil {
		return nil, err
	}
	for _, s := range scenes() {
		if err := r.Play(ctx, r.scene(&s)); err != nil {
			return nil, err
		}
	}
	return &r.Pictures, nil
}

// scene converts a scene to the changes and conditions of a demo.Scene.
func (r *run) scene(s *scene) demo.Scene {
	out := demo.Scene{Title: s.title, Again: s.deleted, Finish: demo.Named(s.finished...)}
	for _, g := range s.come {
		for rank := range g.pods {
			out.Create = append(out.Create, g.member(rank))
		}
	}
	for _, g := range s.wait {
		out.Until = append(out.Until, r.saysWhy(&g))
	}
	for _, g := range s.start {
		out.Until = append(out.Until, r.InPhase(v1.PodRunning, g.names()...))
	}
	for _, g := range s.evicted {
		out.Until = append(out.Until, r.Gone(g.names()...))
	}
	out.Show = func(ctx context.Context, _ time.Time) error {
		reasons, err := r.reasons(ctx, s)
		if err != nil {
			return err
		}
		return r.write(ctx, s, reasons)
	}
	return out
}

// saysWhy returns the condition that every member of a gang has a reason why it waits.
func (r *run) saysWhy(g *gang) demo.Condition {
	return demo.Condition{What: "every member of gang " + g.name + " says why it waits", Instead: func(ctx context.Context) (string, error) {
		for _, name := range g.names() {
			pod, err := r.Pod(ctx, name)
			if err != nil {
				return "", err
			}
			if reasonOf(g, pod) == "" {
				return name + " does not", nil
			}
		}
		return "", nil
	}}
}

// reasons returns why gangs wait, and the messages to preempted ones.
func (r *run) reasons(ctx context.Context, s *scene) (out []string, err error) {
	for _, g := range s.wait {
		longest := "" // one member tried, and its reason mentions preemption, too
		for _, name := range g.names() {
			pod, err := r.Pod(ctx, name)
			if err != nil {
				return nil, err
			}
			if why := reasonOf(&g, pod); len(why) > len(longest) {
				longest = why
			}
		}
		out = append(out, g.name+" waits. "+longest)
	}
	for _, g := range s.evicted {
		var events eventsv1.EventList
		if err := r.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list events: %w", err)
		}
		why := ""
		for i := range events.Items {
			if e := &events.Items[i]; why == "" && e.Regarding.Name == g.nameOf(0) && e.Reason == "Preempted" {
				why = e.Note + "."
			}
		}
		if why == "" {
			r.Problem("gang %s: pod %s was told nothing", g.name, g.nameOf(0))
		}
		out = append(out, g.name+" is evicted. "+why)
	}
	return out, nil
}

// reasonOf returns the scheduler's message to the gang on one member, or "".
func reasonOf(g *gang, pod *v1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && strings.Contains(c.Message, "/"+g.name+": ") {
			return c.Message
		}
	}
	return ""
}
