// SPDX-License-Identifier: Apache-2.0

package gangdemo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// write adds a scene as it is now, and judges the gangs that were to start.
func (r *run) write(ctx context.Context, s *scene, reasons []string) error {
	var list v1.PodList
	if err := r.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list the pods: %w", err)
	}
	gpus, err := ownersOf(list.Items, r.graphs, letterOf)
	if err != nil {
		r.Problem("%s", err)
		return nil
	}
	b := &r.Text
	fmt.Fprintf(b, "%s\n", s.title)
	for _, reason := range reasons {
		fmt.Fprintf(b, "  %s\n", reason)
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, g := range s.start {
		pods := membersOf(&g, list.Items)
		at := make([]place, len(pods))
		for i, pod := range pods {
			at[i] = r.places[pod.Spec.NodeName]
		}
		if wrong := g.judge(at); wrong != "" {
			r.Problem("%s: %s", g.name, wrong)
		}
		fmt.Fprintf(t, "  %c  %s\t%d × %d GPUs\t%s\t%s\n", g.letter, g.name, g.pods, g.gpus, racksOf(at), verdict(pods))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := draw(b, r.nodes, gpus); err != nil {
		return err
	}
	b.WriteString("\n")
	return nil
}

// membersOf returns the bound pods of a gang in the order of their names.
func membersOf(g *gang, pods []v1.Pod) []*v1.Pod {
	var out []*v1.Pod
	for i := range pods {
		if pods[i].Spec.NodeName != "" && slices.Contains(g.names(), pods[i].Name) {
			out = append(out, &pods[i])
		}
	}
	slices.SortFunc(out, func(a, b *v1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// racksOf returns the racks of some pods, each once.
func racksOf(at []place) string {
	var out []string
	for _, p := range at {
		if !slices.Contains(out, p.rack) {
			out = append(out, p.rack)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// verdict returns the scheduler's annotation on the gang, in a few words.
func verdict(pods []*v1.Pod) string {
	for _, pod := range pods {
		if p, err := gangrequest.ParsePlacement(pod.Annotations[gangrequest.PlacementKey]); err == nil {
			return fmt.Sprintf("%s, all-reduce of 1 GB in %.1f ms", p.Quality, float64(p.Estimate.Hierarchical))
		}
	}
	return ""
}
