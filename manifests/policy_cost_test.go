// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/nvtopo/nvtopo/manifests"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// Sizes of what a request has too much of, both above every limit of the policies.
const (
	many, more = 1000, 4000
	// stepOfMacro is less than the cost that one more entry adds where a macro (exists, all, map,
	// filter) goes through all of them, and more than where "in" or == looks for one.
	stepOfMacro = 2.5
)

// parts are the maps and lists of an object that its sender may make as long as a request may be, each with
// a function that fills it with n entries.
var parts = map[string]func(object map[string]any, n int){
	"annotations":                 func(o map[string]any, n int) { metaOf(o)["annotations"] = keys("nvtopo.dev/a%d", n) },
	"annotations of others":       func(o map[string]any, n int) { metaOf(o)["annotations"] = keys("a%d", n) },
	"annotations of Kueue":        func(o map[string]any, n int) { metaOf(o)["annotations"] = keys("kueue.x-k8s.io/a%d", n) },
	"labels":                      func(o map[string]any, n int) { metaOf(o)["labels"] = keys("nvtopo.dev/a%d", n) },
	"labels of Kueue":             func(o map[string]any, n int) { metaOf(o)["labels"] = keys("kueue.x-k8s.io/a%d", n) },
	"annotations of the template": func(o map[string]any, n int) { eachTemplate(o, "annotations", keys("nvtopo.dev/a%d", n)) },
	"labels of the template":      func(o map[string]any, n int) { eachTemplate(o, "labels", keys("kueue.x-k8s.io/a%d", n)) },
	"owners":                      func(o map[string]any, n int) { metaOf(o)["ownerReferences"] = list(n, owner) },
	"finalizers": func(o map[string]any, n int) {
		metaOf(o)["finalizers"] = list(n, func(i int) any { return fmt.Sprintf("kueue.x-k8s.io/f%d", i) })
	},
	"gates": func(o map[string]any, n int) { specOf(o)["schedulingGates"] = list(n, named) },
	"gates in an annotation": func(o map[string]any, n int) {
		metaOf(o)["annotations"] = map[string]any{"kueue.x-k8s.io/admission-gated-by": strings.Repeat(",", n)}
	},
	"containers":            func(o map[string]any, n int) { eachPod(o, "containers", list(n, container)) },
	"init containers":       func(o map[string]any, n int) { eachPod(o, "initContainers", list(n, container)) },
	"limits of a container": func(o map[string]any, n int) { eachPod(o, "containers", []any{limited(n)}) },
	"selected labels":       func(o map[string]any, n int) { eachPod(o, "nodeSelector", keys("a%d", n)) },
	"jobs of a JobSet":      func(o map[string]any, n int) { specOf(o)["replicatedJobs"] = list(n, named) },
	"labels of a job of a JobSet": func(o map[string]any, n int) {
		specOf(o)["replicatedJobs"] = []any{map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": keys("a%d", n)}}}}
	},
	"annotations of a job of a JobSet": func(o map[string]any, n int) {
		specOf(o)["replicatedJobs"] = []any{map[string]any{"template": map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": keys("nvtopo.dev/a%d", n)}}}}}}
	},
	"annotations of a LeaderWorkerSet": func(o map[string]any, n int) {
		child(o, "spec", "leaderWorkerTemplate", "workerTemplate", "metadata")["annotations"] = keys("nvtopo.dev/a%d", n)
		child(o, "spec", "leaderWorkerTemplate", "leaderTemplate", "metadata")["labels"] = keys("nvtopo.dev/a%d", n)
	},
	"groups of a RayJob": func(o map[string]any, n int) {
		child(o, "spec", "rayClusterSpec")["workerGroupSpecs"] = list(n, func(i int) any { return map[string]any{"groupName": fmt.Sprintf("g%d", i)} })
	},
	"limits of a LimitRange": func(o map[string]any, n int) { specOf(o)["limits"] = list(n, named) },
	"resources of a LimitRange": func(o map[string]any, n int) {
		specOf(o)["limits"] = []any{map[string]any{"default": keys("x%d/y", n)}}
	},
	"labels of the node's own kind": func(o map[string]any, n int) { metaOf(o)["labels"] = keys("a%d", n) },
}

func metaOf(o map[string]any) map[string]any { return child(o, "metadata") }
func specOf(o map[string]any) map[string]any { return child(o, "spec") }

// child is a field that is an object, made where it is not there.
func child(o map[string]any, path ...string) map[string]any {
	for _, field := range path {
		next, _ := o[field].(map[string]any)
		if next == nil {
			next = map[string]any{}
			o[field] = next
		}
		o = next
	}
	return o
}

// templates are the places of a pod template in the kinds that have one.
var templates = [][]string{{"template"}, {"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}}

func eachTemplate(o map[string]any, field string, value any) {
	for _, path := range templates {
		child(o, append(slices.Clone(path), "metadata")...)[field] = value
	}
}

func eachPod(o map[string]any, field string, value any) {
	specOf(o)[field] = value
	for _, path := range templates {
		child(o, append(slices.Clone(path), "spec")...)[field] = value
	}
}

func keys(format string, n int) map[string]any {
	out := map[string]any{}
	for i := range n {
		out[fmt.Sprintf(format, i)] = ""
	}
	return out
}

func list(n int, entry func(int) any) []any {
	out := make([]any, n)
	for i := range n {
		out[i] = entry(i)
	}
	return out
}

func named(i int) any { return map[string]any{"name": fmt.Sprintf("a%d", i)} }
func owner(i int) any { return map[string]any{"kind": "A", "name": "y", "uid": strconv.Itoa(i)} }
func container(i int) any {
	return map[string]any{"name": fmt.Sprintf("c%d", i), "resources": map[string]any{"limits": map[string]any{"cpu": "1"}}}
}

func limited(n int) any {
	return map[string]any{"name": "c", "resources": map[string]any{"limits": keys("x%d", n)}}
}

// small is an object that is short in every part.
func small() map[string]any {
	o := map[string]any{"metadata": map[string]any{"name": "n1", "namespace": "team-a"}}
	eachPod(o, "containers", []any{container(0)})
	eachPod(o, "nodeSelector", map[string]any{poolv1alpha1.LabelPool: "training"})
	specOf(o)["suspend"] = true
	return o
}

func grown(part string, n int) map[string]any {
	o := small()
	parts[part](o, n)
	if part == "selected labels" {
		eachPod(o, "nodeSelector", with(keys("a%d", n), map[string]any{poolv1alpha1.LabelPool: "training"}))
	}
	return o
}

// cost is what the API server counts for a policy's expressions: each step of an evaluation is one or
// more.
func cost(t *testing.T, e evaluators, r *request) int64 {
	t.Helper()
	versioned := r.versioned()
	ask := cel.CreateAdmissionRequest(versioned.Attributes, metav1.GroupVersionResource(versioned.GetResource()), metav1.GroupVersionKind(versioned.VersionedKind))
	total := int64(0)
	evaluate := func(some cel.ConditionEvaluator, vars cel.OptionalVariableBindings, budget int64) []cel.EvaluationResult {
		results, left, err := some.ForInput(t.Context(), versioned, ask, vars, &v1.Namespace{}, budget)
		if err != nil {
			t.Fatal(err)
		}
		total += budget - left
		return results
	}
	vars := cel.OptionalVariableBindings{VersionedParams: asObject(r.params), Authorizer: r.authorizer()}
	for _, result := range evaluate(e.conditions, vars, celconfig.RuntimeCELCostBudgetMatchConditions) {
		if result.Error == nil && result.EvalResult.Value() == false {
			return total
		}
	}
	evaluate(e.rules, vars, celconfig.RuntimeCELCostBudget)
	evaluate(e.messages, cel.OptionalVariableBindings{VersionedParams: vars.VersionedParams}, celconfig.RuntimeCELCostBudget)
	return total
}

func allPolicies(t *testing.T) []*admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	policies, err := manifests.Policies()
	if err != nil {
		t.Fatal(err)
	}
	ofPools, err := manifests.PoolPolicies()
	if err != nil {
		t.Fatal(err)
	}
	return append(policies, ofPools...)
}

// requestsOf are requests that a policy judges, by what is too long in them: that make an object,
// that make one longer, and that delete one. old says that the object was long before.
func requestsOf(p *admissionregistrationv1.ValidatingAdmissionPolicy, part string, n int) map[string]*request {
	out := map[string]*request{}
	for i := range p.Spec.MatchConstraints.ResourceRules {
		rule := &p.Spec.MatchConstraints.ResourceRules[i]
		for _, what := range rule.Resources {
			resource, sub, _ := strings.Cut(what, "/")
			base := request{resource: resource, subresource: sub, user: account("team-a", "n1")}
			if strings.HasPrefix(p.Name, "nvtopo-node-") {
				base.user, base.may = account("nvtopo-system", "n1"), []string{"report-hardware nodegputopologies"}
			}
			if p.Spec.ParamKind != nil {
				base.params = map[string]any{"metadata": map[string]any{"name": "training"}, "spec": map[string]any{}}
			}
			for _, operation := range rule.Operations {
				r := base
				if operation != admissionregistrationv1.Delete {
					r.object = grown(part, n)
				} else {
					r.old = grown(part, n)
				}
				if operation == admissionregistrationv1.Update {
					r.old = small()
				}
				out[string(operation)+" "+what] = &r
			}
		}
	}
	return out
}

// TestPolicyCostBounded: no expression of a policy goes entry by entry through a map or list that its
// sender may make long. The API server takes the square of their number for that: its account of the
// cost looks through all values that a macro has left behind at each step.
func TestPolicyCostBounded(t *testing.T) {
	checked := 0
	for _, p := range allPolicies(t) {
		e := compileExpressions(t, p)
		for part := range parts {
			long, longer := requestsOf(p, part, many), requestsOf(p, part, more)
			for name, r := range long {
				checked++
				step := float64(cost(t, e, longer[name])-cost(t, e, r)) / (more - many)
				if step >= stepOfMacro {
					t.Errorf("%s: %s: each more of the %s costs %.1f", p.Name, name, part, step)
				}
			}
		}
	}
	if checked < 500 {
		t.Errorf("%d requests: this was not a test", checked)
	}
}

// TestPolicyCostSeen: the step of the test above is below that of every macro, and above that of
// what looks for one entry.
func TestPolicyCostSeen(t *testing.T) {
	condition := func(expression string) *admissionregistrationv1.ValidatingAdmissionPolicy {
		return &admissionregistrationv1.ValidatingAdmissionPolicy{
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}},
			},
		}
	}
	tests := map[string]struct {
		expression string
		wantMacro  bool
	}{
		"exists":               {"object.metadata.annotations.exists(k, k == 'x')", true},
		"all":                  {"object.metadata.annotations.all(k, k != 'x')", true},
		"filter":               {"size(object.metadata.annotations.filter(k, k.startsWith('x'))) == 1", true},
		"map":                  {"size(object.metadata.annotations.map(k, string(k))) == 1", true},
		"a key":                {"'x' in object.metadata.annotations", false},
		"the same":             {"object.metadata.annotations == object.metadata.annotations", false},
		"a macro behind &&":    {"size(object.metadata.annotations) <= 512 && object.metadata.annotations.exists(k, k == 'x')", false},
		"a macro behind ||":    {"size(object.metadata.annotations) > 512 || object.metadata.annotations.exists(k, k == 'x')", false},
		"a macro in a ternary": {"size(object.metadata.annotations) > 512 ? true : object.metadata.annotations.exists(k, k == 'x')", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := compileExpressions(t, condition(tc.expression))
			of := func(n int) float64 {
				return float64(cost(t, e, &request{resource: "pods", object: grown("annotations", n)}))
			}
			if step := (of(more) - of(many)) / (more - many); (step >= stepOfMacro) != tc.wantMacro {
				t.Errorf("each more costs %.2f, want it above %.1f: %v", step, stepOfMacro, tc.wantMacro)
			}
		})
	}
}
