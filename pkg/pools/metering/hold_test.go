// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// TestRecordSaysWhosePodItWas: a record names its pod's namespace, queue and
// owner, so that a report needs no other object.
func TestRecordSaysWhosePodItWas(t *testing.T) {
	type whose struct{ Namespace, Queue, Owner string }
	of := func(kind, name string, controls bool) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: kind, Name: name, Controller: &controls})
		}
	}
	label := func(key, value string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			if p.Labels == nil {
				p.Labels = map[string]string{}
			}
			p.Labels[key] = value
		}
	}
	for name, tc := range map[string]struct {
		change []func(*v1.Pod)
		want   whose
	}{
		"a pod of nobody's":                    {want: whose{Namespace: "team-a"}},
		"a pod that asked for a queue":         {change: []func(*v1.Pod){label(kueue.LabelQueue, "training")}, want: whose{"team-a", "training", ""}},
		"the queue that let it in goes before": {change: []func(*v1.Pod){label(kueue.LabelQueue, "asked"), label(kueue.LabelLocalQueue, "training.low")}, want: whose{"team-a", "training.low", ""}},
		"a job's":                              {change: []func(*v1.Pod){of("Node", "n1", false), of("Job", "sweep", true)}, want: whose{"team-a", "", "Job/sweep"}},
		"an ElasticJob's, by way of a Job":     {change: []func(*v1.Pod){of("Job", "llm-base", true), label(names.LabelElasticJob, "llm")}, want: whose{"team-a", "", "ElasticJob/llm"}},
		"a session's, by way of a Job":         {change: []func(*v1.Pod){of("Job", "s-remote", true), label(names.LabelSession, "s")}, want: whose{"team-a", "", "RemoteGPUSession/s"}},
	} {
		t.Run(name, func(t *testing.T) {
			records := holds(aPod(tc.change...), joinedAt(5), minute(11))
			if len(records) == 0 {
				t.Fatal("there is no record")
			}
			r := &records[0]
			if diff := cmp.Diff(tc.want, whose{r.Spec.Namespace, r.Spec.Queue, r.Spec.Owner}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
