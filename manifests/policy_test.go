// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// evaluators are the expressions of a policy as the API server evaluates them: the conditions, and,
// where all of them are true, the rules and the messages.
type evaluators struct{ conditions, rules, messages cel.ConditionEvaluator }

// compileExpressions does with the expressions of a policy what the API server does, with the
// environment of expressions that are new to it, which is the stricter one.
func compileExpressions(t *testing.T, p *admissionregistrationv1.ValidatingAdmissionPolicy) evaluators {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	full := cel.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: p.Spec.ParamKind != nil}
	check := func(expression string, err error) {
		if err != nil {
			t.Fatalf("%s: %s: %v", p.Name, expression, err)
		}
	}
	for _, v := range p.Spec.Variables {
		variable := &validating.Variable{Name: v.Name, Expression: v.Expression}
		result := compiler.CompileCELExpression(variable, full, environment.NewExpressions)
		if result.Error != nil {
			check(v.Expression, result.Error)
		}
		compiler.CompileAndStoreVariable(variable, full, environment.NewExpressions)
	}
	compiled := func(accessors []cel.ExpressionAccessor, vars cel.OptionalVariableDeclarations) cel.ConditionEvaluator {
		evaluator := compiler.CompileCondition(accessors, vars, environment.NewExpressions)
		for _, err := range evaluator.CompilationErrors() {
			check("", err)
		}
		return evaluator
	}
	conditions := make([]cel.ExpressionAccessor, 0, len(p.Spec.MatchConditions))
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	var rules, messages []cel.ExpressionAccessor
	for _, v := range p.Spec.Validations {
		rules = append(rules, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		var message cel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, message)
	}
	return evaluators{
		conditions: compiled(conditions, full), rules: compiled(rules, full),
		messages: compiled(messages, cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil}),
	}
}

// compile makes of a policy what the API server asks.
func compile(t *testing.T, p *admissionregistrationv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	e := compileExpressions(t, p)
	matcher := matchconditions.NewMatcher(e.conditions, p.Spec.FailurePolicy, "policy", "validate", p.Name)
	selector := labels.Everything()
	if s := p.Spec.MatchConstraints.ObjectSelector; s != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(s); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
	}
	return selected{validating.NewValidator(e.rules, matcher, cel.NewCondition(nil), e.messages, p.Spec.FailurePolicy), selector}
}

// selected is a policy that is asked only about objects that its selector matches, before the change
// or after it.
type selected struct {
	validating.Validator
	selector labels.Selector
}

func (s selected) Validate(ctx context.Context, resource schema.GroupVersionResource, attr *admission.VersionedAttributes, params runtime.Object,
	namespace *v1.Namespace, budget int64, authz authorizer.Authorizer,
) validating.ValidateResult {
	for _, o := range []runtime.Object{attr.VersionedObject, attr.VersionedOldObject} {
		if accessor, err := meta.Accessor(o); o != nil && err == nil && s.selector.Matches(labels.Set(accessor.GetLabels())) {
			return s.Validator.Validate(ctx, resource, attr, params, namespace, budget, authz)
		}
	}
	return validating.ValidateResult{}
}

// request is what an account sends; object and old are nil where there is none.
type request struct {
	resource, subresource string
	object, old           map[string]any
	user                  *user.DefaultInfo
	may                   []string       // "verb resource" in the project's groups and the core
	params                map[string]any // of a policy that has them
	options               runtime.Object // CreateOptions when nil
}

// versioned is the request as a policy sees it.
func (r *request) versioned() *admission.VersionedAttributes {
	group := map[string]string{
		"nodegputopologies": "topology.nvtopo.dev", "leases": "coordination.k8s.io", "events": "events.k8s.io", "deployments": "apps", "replicasets": "apps", "statefulsets": "apps", "daemonsets": "apps", "jobs": "batch", "cronjobs": "batch",
		"podgroups": "scheduling.x-k8s.io", "workloads": "kueue.x-k8s.io", "clusterqueues": "kueue.x-k8s.io", "localqueues": "kueue.x-k8s.io",
		"jobsets": "jobset.x-k8s.io", "leaderworkersets": "leaderworkerset.x-k8s.io", "rayjobs": "ray.io", "usagerecords": "pool.nvtopo.dev", "usagebatches": "pool.nvtopo.dev", "invoices": "pool.nvtopo.dev", "tenantaccounts": "pool.nvtopo.dev",
	}[r.resource]
	operation, object, old := admission.Create, asObject(r.object), asObject(r.old)
	switch {
	case r.object == nil:
		operation = admission.Delete
	case r.old != nil:
		operation = admission.Update
	}
	named := r.object
	if named == nil {
		named = r.old
	}
	metadata, _ := named["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: r.resource}
	who := r.user
	if who == nil {
		who = &user.DefaultInfo{Name: "somebody", Groups: []string{"system:authenticated"}}
	}
	opts := r.options
	if opts == nil {
		opts = &metav1.CreateOptions{}
	}
	attributes := admission.NewAttributesRecord(object, old, schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Any"}, namespace, name,
		gvr, r.subresource, operation, opts, false, who)
	return &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: attributes.GetKind(), VersionedObject: object, VersionedOldObject: old,
	}
}

// authorizer allows what the request's account may.
func (r *request) authorizer() authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		ours := a.GetAPIGroup() == "topology.nvtopo.dev" || a.GetAPIGroup() == "pool.nvtopo.dev" || a.GetAPIGroup() == ""
		if ours && a.GetNamespace() == "" && slices.Contains(r.may, a.GetVerb()+" "+a.GetResource()) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
}

// answer returns the messages with which a policy refuses the request.
func answer(t *testing.T, policies map[string]validating.Validator, r request, policy string) []string {
	t.Helper()
	var out []string
	versioned := r.versioned()
	result := policies[policy].Validate(t.Context(), versioned.GetResource(), versioned, asObject(r.params), &v1.Namespace{}, celconfig.RuntimeCELCostBudget, r.authorizer())
	for _, d := range result.Decisions {
		if d.Action == validating.ActionDeny {
			out = append(out, d.Message)
		}
	}
	return out
}

func asObject(m map[string]any) runtime.Object {
	if m == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: m}
}

func compiledPolicies(t *testing.T) map[string]validating.Validator {
	t.Helper()
	list, err := manifests.Policies()
	if err != nil {
		t.Fatal(err)
	}
	bindings, err := manifests.PolicyBindings()
	if err != nil {
		t.Fatal(err)
	}
	return compiledList(t, list, bindings, 8)
}

// compiledList compiles policies, of which there have to be so many, and checks that all are in
// force.
func compiledList(t *testing.T, list []*admissionregistrationv1.ValidatingAdmissionPolicy,
	bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding, want int,
) map[string]validating.Validator {
	t.Helper()
	bound := map[string]admissionregistrationv1.ValidationAction{}
	for _, b := range bindings {
		if actions := b.Spec.ValidationActions; len(actions) == 1 {
			bound[b.Spec.PolicyName] = actions[0]
		}
	}
	out := map[string]validating.Validator{}
	for _, p := range list {
		out[p.Name] = compile(t, p)
		action, failurePolicy := admissionregistrationv1.Deny, admissionregistrationv1.Fail
		if strings.HasPrefix(p.Name, "nvtopo-keys") { // they give advice
			action, failurePolicy = admissionregistrationv1.Warn, admissionregistrationv1.Ignore
		}
		if p.Spec.ParamKind != nil && p.Spec.ParamKind.Kind == "ComputePool" {
			failurePolicy = admissionregistrationv1.Ignore // its parameters may not be there to be read
		}
		if bound[p.Name] != action || p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy != failurePolicy {
			t.Errorf("policy %s is not in force or lets requests through that it cannot judge", p.Name)
		}
	}
	if len(out) != want || len(bindings) != want {
		t.Fatalf("%d policies with %d bindings, want %d", len(out), len(bindings), want)
	}
	return out
}

// annotated is an object with annotations, given as key, value, key, value.
func annotated(pairs ...string) map[string]any {
	annotations := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		annotations[pairs[i]] = pairs[i+1]
	}
	return map[string]any{"metadata": map[string]any{"name": "x", "namespace": "default", "annotations": annotations}}
}

func checkAnswer(t *testing.T, got []string, want string) {
	t.Helper()
	all := strings.Join(got, "\n")
	switch {
	case want == "" && all != "":
		t.Errorf("refused: %s", all)
	case want != "" && !strings.Contains(all, want):
		t.Errorf("the answer is %q, want %q in it", all, want)
	}
}

func TestAllocationsPolicy(t *testing.T) {
	const ids, one, alias, own = "nvtopo.dev/gpu-ids", "nvtopo.dev/gpu-ids.main", "scheduling.k8s.io/gpu-ids", "nvtopo.dev/min-link"
	const state = gangrequest.StateKey
	bare := map[string]any{"metadata": map[string]any{"name": "x"}}
	mayWrite := []string{"write allocations"}
	tests := map[string]struct {
		request request
		want    string // part of the refusal; empty: accepted
	}{
		"a pod without annotations":          {request{resource: "pods", object: bare}, ""},
		"a pod with inputs":                  {request{resource: "pods", object: annotated(own, "NVLINK", "nvtopo.dev/gpu-ids-of", "x")}, ""},
		"a pod that brings an allocation":    {request{resource: "pods", object: annotated("nvtopo.dev/allocation", "{}")}, "nvtopo.dev/allocation"},
		"a pod that brings a container's":    {request{resource: "pods", object: annotated(one, "a")}, one},
		"a pod that brings an alias":         {request{resource: "pods", object: annotated(alias, "")}, alias},
		"a change elsewhere":                 {request{resource: "pods", object: annotated(ids, "a", own, "PIX"), old: annotated(ids, "a")}, ""},
		"the status, nothing changed":        {request{resource: "pods", subresource: "status", object: annotated(ids, "a"), old: annotated(ids, "a")}, ""},
		"the status, one changed":            {request{resource: "pods", subresource: "status", object: annotated(ids, "b"), old: annotated(ids, "a")}, ids},
		"one taken away":                     {request{resource: "pods", object: annotated(own, "x"), old: annotated(one, "a")}, one},
		"all annotations taken away":         {request{resource: "pods", object: bare, old: annotated(alias, "a")}, alias},
		"one added later":                    {request{resource: "pods", object: annotated(ids, "a"), old: bare}, ids},
		"a deletion is none of its business": {request{resource: "pods", object: bare, old: bare}, ""},
		"a Binding with one":                 {request{resource: "pods", subresource: "binding", object: annotated(ids, "a")}, ids},
		"a Binding without":                  {request{resource: "pods", subresource: "binding", object: bare}, ""},
		"a legacy Binding with one":          {request{resource: "bindings", object: annotated(ids, "a")}, ids},
		"a pod that brings a rank":           {request{resource: "pods", object: annotated("nvtopo.dev/rank", "0")}, "nvtopo.dev/rank"},
		"a PodGroup with wishes":             {request{resource: "podgroups", object: annotated("nvtopo.dev/required-topology", "rack")}, ""},
		"a gang that is said to be partial":  {request{resource: "podgroups", object: annotated(state, "{}"), old: annotated(state, "x")}, state},
		"the scheduler's word of a gang":     {request{resource: "podgroups", object: annotated(state, "{}"), old: bare, may: mayWrite}, ""},
		"the scheduler adds one":             {request{resource: "pods", object: annotated(ids, "a"), old: bare, may: mayWrite}, ""},
		"the scheduler binds with one":       {request{resource: "pods", subresource: "binding", object: annotated(ids, "a"), may: mayWrite}, ""},
		"another permission does not count":  {request{resource: "pods", object: annotated(ids, "a"), may: []string{"write nodegputopologies", "create allocations"}}, ids},
	}
	policies := compiledPolicies(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			checkAnswer(t, answer(t, policies, tc.request, "nvtopo-allocations"), tc.want)
		})
	}
}

func TestTemplatesPolicy(t *testing.T) {
	template := func(path []string, pairs ...string) map[string]any {
		obj := map[string]any{"metadata": map[string]any{"name": "x"}}
		if err := unstructured.SetNestedMap(obj, annotated(pairs...), path...); err != nil {
			t.Fatal(err)
		}
		return obj
	}
	spec, cron, bare := []string{"spec", "template"}, []string{"spec", "jobTemplate", "spec", "template"}, []string{"template"}
	const ids = "nvtopo.dev/gpu-ids"
	tests := map[string]struct {
		request request
		want    string
	}{
		"a Deployment with inputs": {request{resource: "deployments", object: template(spec, "nvtopo.dev/min-link", "PIX")}, ""},
		"a Deployment with an output": {
			request{resource: "deployments", object: template(spec, ids, "a")}, "spec.template.metadata.annotations: drop " + ids,
		},
		"a Job with the output of one container": {request{resource: "jobs", object: template(spec, ids+".main", "a")}, "drop " + ids + ".main"},
		"a CronJob with an alias": {
			request{resource: "cronjobs", object: template(cron, "scheduling.k8s.io/numa-node", "0")},
			"spec.jobTemplate.spec.template.metadata.annotations: drop scheduling.k8s.io/numa-node",
		},
		"a PodTemplate with an output": {request{resource: "podtemplates", object: template(bare, ids, "a")}, "template.metadata.annotations: drop " + ids},
		"a PodTemplate without":        {request{resource: "podtemplates", object: map[string]any{"metadata": map[string]any{"name": "x"}}}, ""},
		"an old one is scaled":         {request{resource: "deployments", object: template(spec, ids, "a"), old: template(spec, ids, "a")}, ""},
		"an old one gets another":      {request{resource: "deployments", object: template(spec, ids, "a", ids+".x", "b"), old: template(spec, ids, "a")}, "drop " + ids + ".x:"},
		"the scheduler may not either": {request{resource: "jobs", object: template(spec, ids, "a"), may: []string{"write allocations"}}, "drop " + ids},
	}
	policies := compiledPolicies(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			checkAnswer(t, answer(t, policies, tc.request, "nvtopo-templates"), tc.want)
		})
	}
}
