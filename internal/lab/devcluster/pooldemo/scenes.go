// SPDX-License-Identifier: Apache-2.0

package pooldemo

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	gpu     = topologyv1alpha1.DefaultResource
	elastic = "llm"
)

// scenes returns the demo's scenes. Their order matters: each builds on the state that the earlier ones
// left.
func (r *run) scenes() []demo.Scene {
	all := tenants()
	shares, everybody := map[string]int64{}, []string{}
	for _, t := range all {
		shares[t.name], everybody = t.share, append(everybody, t.name)
	}
	const (
		alone    = "team-a comes with 60 jobs of one GPU and has the pool for itself, up to its limit"
		together = "team-b and team-c come with 40 each: who has more than his share gives back, and what is not guaranteed is shared 3:2:1"
		grows    = "those jobs end; an elastic job of team-a, two to six times eight GPUs, grows into the idle pool"
		shrinks  = "team-b asks for its guaranteed 16: eight are idle, and the elastic job gives up a replica for the others"
		again    = "team-b's jobs end, and the elastic job grows again"
		over     = "all jobs have ended; the invoices of this month so far"
	)
	nobody := func() []demo.Condition { return []demo.Condition{r.hold(map[string]int64{})} }
	return []demo.Scene{
		{Create: objects(), Until: []demo.Condition{r.ready()}},
		{
			Title: alone, Create: backlog(all[0], 60),
			Until: []demo.Condition{r.hold(map[string]int64{all[0].name: all[0].limit})}, Show: r.picture(alone),
		},
		{
			Title: together, Create: append(backlog(all[1], 40), backlog(all[2], 40)...),
			Until: []demo.Condition{r.hold(shares)}, Show: r.picture(together),
		},
		{EndJobs: everybody, Until: nobody()},
		{
			Title: grows, Create: []client.Object{elasticJob()},
			Until: []demo.Condition{r.hold(map[string]int64{"team-a": 48}), r.replicas(6)}, Show: r.keepsBase(grows),
		},
		{
			Title: shrinks, Create: []client.Object{job("team-b", "claim-0", 8), job("team-b", "claim-1", 8)},
			Until: []demo.Condition{r.hold(map[string]int64{"team-a": 40, "team-b": 16}), r.replicas(5)}, Show: r.keepsBase(shrinks),
		},
		{
			Title: again, Finish: []demo.Pods{{Namespace: "team-b"}},
			Until: []demo.Condition{r.hold(map[string]int64{"team-a": 48})}, Show: r.picture(again),
		},
		{Finish: []demo.Pods{{Namespace: "team-a", Job: names.BaseJob(elastic)}}, Until: nobody()},
		{Title: over, Until: []demo.Condition{r.invoiced()}, Show: r.invoices(over)},
	}
}

// backlog returns n jobs of one GPU.
func backlog(t tenant, n int) (out []client.Object) {
	for i := range n {
		out = append(out, job(t.name, fmt.Sprintf("job-%d", i), 1))
	}
	return out
}

// job returns a job of one pod, which runs until it is told to end.
func job(namespace, name string, gpus int64) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{kueue.LabelQueue: names.LocalQueue(pool, "")}},
		Spec: batchv1.JobSpec{Suspend: new(true), BackoffLimit: new(int32(1000)), Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
			SchedulerName: demo.SchedulerName, RestartPolicy: v1.RestartPolicyNever,
			Containers: []v1.Container{{Name: "main", Image: "example.com/train", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)},
			}}},
		}}},
	}
}

// elasticJob returns a job of two to six replicas of eight GPUs.
func elasticJob() client.Object {
	return object(group, "ElasticJob", "team-a", elastic, nil, map[string]any{
		"pool":    pool,
		"scaling": map[string]any{"minReplicas": int64(2), "maxReplicas": int64(6), "gpuPerReplica": int64(8)},
		"template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "main", "image": "example.com/train"},
		}}},
	})
}
