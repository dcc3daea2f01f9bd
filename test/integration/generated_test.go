// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/cli/generate"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestGeneratedProfiles runs the scheduler with the output of "nvtopo generate scheduler-profile", for
// each kind of work. The API server, with the admission policies in force, accepts the output of
// "generate pod", and the scheduler places it.
func TestGeneratedProfiles(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.node(t, "n1", "dgx1-v100")
	for _, w := range []generate.Workload{generate.Training, generate.Inference, generate.Mixed} {
		t.Run(string(w), func(t *testing.T) {
			p, err := generate.ProfileFor(w)
			if err != nil {
				t.Fatal(err)
			}
			p.OnBinding = w == generate.Inference
			data, err := p.Write()
			if err != nil {
				t.Fatal(err)
			}
			s, err := l.StartScheduler(t.Context(), devcluster.SchedulerOptions{
				Binary: testkit.Program(t, "nvtopo-scheduler"), Config: fromOutside(t, data), ServiceAccount: l.schedulerAccount,
			})
			if err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			train := generatedPod(t, &generate.Pod{
				Workload: generate.Training, Name: "train-" + string(w), GPUs: 4, CPUs: 32,
				Annotations: map[string]string{podrequest.TopologyPolicyKey: "best-effort", podrequest.NUMAAffinityKey: "preferred"},
				Interface:   "eth0", TopologyConfigMap: "nccl-topology",
			})
			serve := generatedPod(t, &generate.Pod{
				Workload: generate.Inference, Name: "serve-" + string(w), GPUs: 1, CPUs: 8, Port: 8000,
				Annotations: map[string]string{podrequest.TopologyPolicyKey: "single-numa-node", podrequest.NUMAAffinityKey: "required"},
			})
			l.create(t, train, serve)
			used := choiceOf(t, l.bound(t, train.Name), l.graphs["n1"]).set
			c := choiceOf(t, l.bound(t, serve.Name), l.graphs["n1"])
			if used.Len() != 4 || c.set.Len() != 1 || used&c.set != 0 || len(c.NUMANodes) != 1 || len(c.cpus) != 8 {
				t.Errorf("GPUs %v and %v with CPUs %s of NUMA nodes %v, want 4 and another with 8 CPUs of one node",
					used.Positions(), c.set.Positions(), c.CPUSet, c.NUMANodes)
			}
			l.remove(t, train.Name, serve.Name)
			if err := s.Stop(t.Context()); err != nil {
				t.Errorf("stop the scheduler: %v", err)
			}
		})
	}
}

// generatedPod returns a pod as kubectl would read it from the generator's text.
func generatedPod(t *testing.T, p *generate.Pod) *v1.Pod {
	t.Helper()
	p.Image, p.Scheduler, p.Resource = "example.com/work:1", "topology-aware-scheduler", "nvidia.com/gpu"
	p.Memory, p.SharedMemory = resource.MustParse("64Gi"), resource.MustParse("32Gi")
	data, err := p.Write()
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict(data, pod); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	pod.Namespace = metav1.NamespaceDefault
	pod.Spec.TerminationGracePeriodSeconds = new(int64) // no kubelet ends it, so its deletion must not wait for one
	return pod
}
