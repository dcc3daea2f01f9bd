// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/placement/podkeys"
)

// ourKey is a key of ours as an expression has it.
var ourKey = regexp.MustCompile(`'(nvtopo\.dev/[a-z0-9-]+)'`)

// TestKeyLists: the policies that warn of keys know those that the programs read and write, and no
// others.
func TestKeyLists(t *testing.T) {
	policies, err := manifests.Policies()
	if err != nil {
		t.Fatal(err)
	}
	listed := func(expression, after string) []string {
		_, text, found := strings.Cut(expression, after)
		if !found {
			t.Fatalf("%q is not in %s", after, expression)
		}
		text, _, _ = strings.Cut(strings.TrimLeft(text, " dyn(["), "]")
		var keys []string
		for _, m := range ourKey.FindAllStringSubmatch(text, -1) {
			keys = append(keys, m[1])
		}
		slices.Sort(keys)
		return keys
	}
	const ofGangs = " && size(["
	checked := 0
	compare := func(where string, want, got []string) {
		checked++
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-code +policy)\n%s", where, diff)
		}
	}
	for _, p := range policies {
		if !strings.HasPrefix(p.Name, "nvtopo-keys") {
			continue
		}
		if p.Name == "nvtopo-keys" {
			condition := strings.ReplaceAll(p.Spec.MatchConditions[0].Expression, "\n", " ")
			compare(p.Name+": known keys of the condition", podkeys.Annotations(), listed(condition, "size(ours) > size(["))
			compare(p.Name+": keys of gangs of the condition", podkeys.GangOnly(), listed(condition, "'kueue.x-k8s.io/pod-group-name' in labels)"+ofGangs))
		}
		for _, v := range p.Spec.Variables {
			where := p.Name + ": " + v.Name
			switch v.Name {
			case "inputs":
				compare(where, podkeys.Inputs(), listed(v.Expression, "["))
			case "known":
				compare(where, podkeys.Annotations(), listed(v.Expression, "{"))
			}
			if _, after, found := strings.Cut(v.Expression, "'kueue.x-k8s.io/pod-group-name' in "); found {
				compare(where+": keys of gangs", podkeys.GangOnly(), listed(after, "labels ? [] :"))
			}
		}
	}
	if checked != 8 {
		t.Errorf("%d lists were compared, want 8", checked)
	}
}

func TestKeysPolicies(t *testing.T) {
	const (
		notKnown = " is not known and without effect; docs/configuration.md lists the annotations of pods"
		noSize   = "nvtopo.dev/gang-size is missing beside nvtopo.dev/gang: it says how many pods of the gang start together, and without it they wait"
	)
	bare := map[string]any{"metadata": map[string]any{"name": "x"}}
	labelled := func(o map[string]any, pairs ...string) map[string]any {
		for i := 0; i < len(pairs); i += 2 {
			child(o, "metadata", "labels")[pairs[i]] = pairs[i+1]
		}
		return o
	}
	owned := func(o map[string]any) map[string]any {
		metaOf(o)["ownerReferences"] = []any{map[string]any{"kind": "Job", "name": "j", "uid": "u", "controller": true}}
		return o
	}
	under := func(o map[string]any, path ...string) map[string]any {
		out := map[string]any{"metadata": map[string]any{"name": "x", "namespace": "default"}}
		child(out, path[:len(path)-1]...)[path[len(path)-1]] = o
		return out
	}
	jobset := func(templates ...map[string]any) map[string]any {
		var jobs []any
		for _, o := range templates {
			jobs = append(jobs, map[string]any{"name": "workers", "template": under(o, "spec", "template")})
		}
		return under(map[string]any{"replicatedJobs": jobs}, "spec")
	}
	wrong := func() map[string]any { return annotated("nvtopo.dev/topology-polcy", "restricted") }
	tests := map[string]struct {
		request request
		want    string // part of the warning; empty: none
	}{
		"a pod without annotations":    {request{resource: "pods", object: bare}, ""},
		"a pod with known ones":        {request{resource: "pods", object: annotated("nvtopo.dev/min-link", "NV4", "nvtopo.dev/gpu-ids.main", "x", "a/b", "c")}, ""},
		"a pod of a gang":              {request{resource: "pods", object: annotated("nvtopo.dev/gang", "g", "nvtopo.dev/gang-size", "4", "nvtopo.dev/rank-order", "name")}, ""},
		"keys of pools":                {request{resource: "pods", object: labelled(annotated("pool.nvtopo.dev/x", ""), "pool.nvtopo.dev/pool", "p")}, ""},
		"a letter is missing":          {request{resource: "pods", object: wrong()}, "metadata.annotations: nvtopo.dev/topology-polcy (near: nvtopo.dev/topology-policy)" + notKnown},
		"a letter is wrong":            {request{resource: "pods", object: annotated("nvtopo.dev/nuna-affinity", "required")}, "nvtopo.dev/nuna-affinity (near: nvtopo.dev/numa-affinity)" + notKnown},
		"two letters are swapped":      {request{resource: "pods", object: annotated("nvtopo.dev/gagn", "g")}, "nvtopo.dev/gagn (near: nvtopo.dev/gang)" + notKnown},
		"a letter too much":            {request{resource: "pods", object: annotated("nvtopo.dev/requireed-topology", "rack")}, "nvtopo.dev/requireed-topology (near: nvtopo.dev/preferred-topology, nvtopo.dev/required-topology)" + notKnown},
		"capital letters":              {request{resource: "pods", object: annotated("nvtopo.dev/Min-Link", "NV4")}, "nvtopo.dev/Min-Link (near: nvtopo.dev/min-link)" + notKnown},
		"another domain":               {request{resource: "pods", object: annotated("nvtopo.io/topology-policy", "restricted")}, "nvtopo.io/topology-policy (near: nvtopo.dev/topology-policy)" + notKnown},
		"nothing is near":              {request{resource: "pods", object: annotated("nvtopo.dev/affinity-of-all", "x")}, "metadata.annotations: nvtopo.dev/affinity-of-all" + notKnown},
		"many are wrong":               {request{resource: "pods", object: grown("annotations", 64)}, " and 60 more are not known"},
		"too many are ours":            {request{resource: "pods", object: grown("annotations", 65)}, ""},
		"one beside many of others":    {request{resource: "pods", object: crowded(512, "nvtopo.dev/topology-polcy", "")}, "nvtopo.dev/topology-polcy"},
		"one beside too many":          {request{resource: "pods", object: crowded(513, "nvtopo.dev/topology-polcy", "")}, ""},
		"the size of no gang":          {request{resource: "pods", object: annotated("nvtopo.dev/gang-size", "4")}, "metadata.annotations: nvtopo.dev/gang-size: without effect on a pod that is in no gang: nvtopo.dev/gang is missing"},
		"a level of no gang":           {request{resource: "pods", object: annotated("nvtopo.dev/required-topology", "rack")}, "nvtopo.dev/required-topology: without effect"},
		"a level of a PodGroup's":      {request{resource: "pods", object: labelled(annotated("nvtopo.dev/required-topology", "rack"), "scheduling.x-k8s.io/pod-group", "g")}, ""},
		"a level of a group of Kueue":  {request{resource: "pods", object: labelled(annotated("nvtopo.dev/required-topology", "rack"), "kueue.x-k8s.io/pod-group-name", "g")}, ""},
		"a gang without a size":        {request{resource: "pods", object: annotated("nvtopo.dev/gang", "g")}, "metadata.annotations: " + noSize},
		"a misspelled size":            {request{resource: "pods", object: annotated("nvtopo.dev/gang", "g", "nvtopo.dev/gangsize", "4")}, "nvtopo.dev/gangsize (near: nvtopo.dev/gang-size)" + notKnown},
		"a name beside a PodGroup's":   {request{resource: "pods", object: labelled(annotated("nvtopo.dev/gang", "g"), "scheduling.x-k8s.io/pod-group", "g")}, ""},
		"a name beside Kueue's":        {request{resource: "pods", object: labelled(annotated("nvtopo.dev/gang", "g"), "kueue.x-k8s.io/pod-group-name", "g")}, ""},
		"a size that never was":        {request{resource: "pods", object: annotated("nvtopo.dev/gang", "g", "a", "b"), old: annotated("nvtopo.dev/gang", "g")}, ""},
		"a size that was taken away":   {request{resource: "pods", object: annotated("nvtopo.dev/gang", "g"), old: annotated("nvtopo.dev/gang", "g", "nvtopo.dev/gang-size", "4")}, noSize},
		"a gang that came without one": {request{resource: "pods", object: annotated("nvtopo.dev/gang", "g"), old: bare}, noSize},
		"a Job that makes members":     {request{resource: "pods", object: owned(annotated("nvtopo.dev/gang", "g"))}, ""},
		"one gang beside too many":     {request{resource: "pods", object: crowded(513, "nvtopo.dev/gang", "g")}, ""},
		"a Deployment without a size":  {request{resource: "deployments", object: under(annotated("nvtopo.dev/gang", "g"), "spec", "template")}, "spec.template.metadata.annotations: " + noSize},
		"a StatefulSet without a size": {request{resource: "statefulsets", object: under(annotated("nvtopo.dev/gang", "g"), "spec", "template")}, "spec.template.metadata.annotations: " + noSize},
		"a Job without a size":         {request{resource: "jobs", object: under(annotated("nvtopo.dev/gang", "g"), "spec", "template")}, "spec.template.metadata.annotations: " + noSize},
		"a JobSet without a size":      {request{resource: "jobsets", object: jobset(annotated("nvtopo.dev/gang", "g", "nvtopo.dev/gang-size", "4"), annotated("nvtopo.dev/gang", "h"))}, "spec.replicatedJobs[workers].template.spec.template.metadata.annotations: " + noSize},
		"a JobSet with a PodGroup":     {request{resource: "jobsets", object: jobset(labelled(annotated("nvtopo.dev/gang", "g"), "scheduling.x-k8s.io/pod-group", "g"))}, ""},
		"a LeaderWorkerSet without a size": {
			request{resource: "leaderworkersets", object: under(annotated("nvtopo.dev/gang", "g"), "spec", "leaderWorkerTemplate", "workerTemplate")}, "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations: " + noSize,
		},
		"a RayJob without a size": {
			request{resource: "rayjobs", object: under(annotated("nvtopo.dev/gang", "g"), "spec", "rayClusterSpec", "headGroupSpec", "template")}, "spec.rayClusterSpec.headGroupSpec.template.metadata.annotations: " + noSize,
		},
		"a label for an annotation":    {request{resource: "pods", object: labelled(annotated(), "nvtopo.dev/gang", "g")}, "metadata.labels: nvtopo.dev/gang (near: nvtopo.dev/gang): nvtopo reads annotations of pods"},
		"labels of another domain":     {request{resource: "pods", object: labelled(annotated(), "nvtopo.io/gang", "g")}, "metadata.labels: nvtopo.io/gang"},
		"a pod that a controller made": {request{resource: "pods", object: owned(wrong())}, ""},
		"it was there before":          {request{resource: "pods", object: annotated("nvtopo.dev/topology-polcy", "restricted", "a", "b"), old: wrong()}, ""},
		"it came later":                {request{resource: "pods", object: wrong(), old: bare}, "nvtopo.dev/topology-polcy"},
		"the gang was taken away":      {request{resource: "pods", object: annotated("nvtopo.dev/gang-size", "4"), old: annotated("nvtopo.dev/gang", "g", "nvtopo.dev/gang-size", "4")}, "nvtopo.dev/gang-size: without"},
		"the size was without before":  {request{resource: "pods", object: annotated("nvtopo.dev/gang-size", "4", "a", "b"), old: annotated("nvtopo.dev/gang-size", "4")}, ""},
		"a Deployment":                 {request{resource: "deployments", object: under(wrong(), "spec", "template")}, "spec.template.metadata.annotations: nvtopo.dev/topology-polcy"},
		"a good Deployment":            {request{resource: "deployments", object: under(annotated("nvtopo.dev/min-link", "NV4"), "spec", "template")}, ""},
		"a Deployment's ReplicaSet":    {request{resource: "replicasets", object: owned(under(wrong(), "spec", "template"))}, ""},
		"a StatefulSet":                {request{resource: "statefulsets", object: under(wrong(), "spec", "template")}, "spec.template.metadata.annotations"},
		"a DaemonSet":                  {request{resource: "daemonsets", object: under(wrong(), "spec", "template")}, "spec.template.metadata.annotations"},
		"a Job":                        {request{resource: "jobs", object: under(wrong(), "spec", "template")}, "spec.template.metadata.annotations"},
		"a CronJob":                    {request{resource: "cronjobs", object: under(wrong(), "spec", "jobTemplate", "spec", "template")}, "spec.jobTemplate.spec.template.metadata.annotations"},
		"a PodTemplate":                {request{resource: "podtemplates", object: under(wrong(), "template")}, "template.metadata.annotations"},
		"a JobSet":                     {request{resource: "jobsets", object: jobset(annotated(), wrong())}, "spec.replicatedJobs[workers].template.spec.template.metadata.annotations: nvtopo.dev/topology-polcy (near: nvtopo.dev/topology-policy)" + notKnown},
		"a good JobSet":                {request{resource: "jobsets", object: jobset(annotated("nvtopo.dev/gang", "g", "nvtopo.dev/gang-size", "4"))}, ""},
		"a JobSet without jobs":        {request{resource: "jobsets", object: bare}, ""},
		"a JobSet that a program made": {request{resource: "jobsets", object: owned(jobset(wrong()))}, ""},
		"a JobSet that is resumed": {
			request{resource: "jobsets", object: with(jobset(wrong()), map[string]any{"spec": map[string]any{"suspend": true}}), old: jobset(wrong()), user: account("kueue", "n1")}, "",
		},
		"the workers of a LeaderWorkerSet": {request{resource: "leaderworkersets", object: under(annotated("nvtopo.dev/gang-size", "4"), "spec", "leaderWorkerTemplate", "workerTemplate")}, "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations: nvtopo.dev/gang-size: without effect"},
		"the leader of a LeaderWorkerSet":  {request{resource: "leaderworkersets", object: under(wrong(), "spec", "leaderWorkerTemplate", "leaderTemplate")}, "spec.leaderWorkerTemplate.leaderTemplate.metadata.annotations: nvtopo.dev/topology-polcy"},
		"the head of a RayJob":             {request{resource: "rayjobs", object: under(labelled(annotated(), "nvtopo.dev/gang", "g"), "spec", "rayClusterSpec", "headGroupSpec", "template")}, "spec.rayClusterSpec.headGroupSpec.template.metadata.labels: nvtopo.dev/gang"},
		"the workers of a RayJob": {
			request{resource: "rayjobs", object: under(map[string]any{"workerGroupSpecs": []any{map[string]any{"groupName": "gpus", "template": wrong()}}}, "spec", "rayClusterSpec")},
			"spec.rayClusterSpec.workerGroupSpecs[gpus].template.metadata.annotations: nvtopo.dev/topology-polcy",
		},
	}
	policies := compiledPolicies(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			policy := "nvtopo-keys"
			if slices.Contains([]string{"jobsets", "leaderworkersets", "rayjobs"}, tc.request.resource) {
				policy = "nvtopo-keys-of-sets"
			}
			checkAnswer(t, answer(t, policies, tc.request, policy), tc.want)
		})
	}
}

// TestKeysPolicyCost: below the number from which nothing is looked at, twice as many annotations or labels
// cost no more than twice as much, and few bad ones no more than a limited sum beside that.
func TestKeysPolicyCost(t *testing.T) {
	for _, p := range allPolicies(t) {
		if p.Name != "nvtopo-keys" {
			continue
		}
		e := compileExpressions(t, p)
		for _, part := range []string{"annotations", "annotations of others", "labels"} {
			of := func(n int) float64 { return float64(cost(t, e, &request{resource: "pods", object: grown(part, n)})) }
			if half, whole := of(256), of(512); whole > 2*half || whole < 500 {
				t.Errorf("%s: %.0f for 512, and %.0f for 256", part, whole, half)
			}
		}
		const most = 20_000 // some milliseconds
		few := cost(t, e, &request{resource: "pods", object: crowded(512, "nvtopo.dev/a", "", "nvtopo.dev/b", "", "nvtopo.dev/c", "", "nvtopo.dev/d", "", "nvtopo.dev/e", "")})
		if few > most {
			t.Errorf("five bad keys of 512 cost %d, want at most %d", few, most)
		}
	}
}
