// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/testkit"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// peoplesRoles returns the ClusterRoles that tenants get in their namespaces, with an example of the
// rights of each.
func peoplesRoles() map[string]authorizationv1.ResourceAttributes {
	makeJobs := authorizationv1.ResourceAttributes{Verb: "create", Group: "batch", Resource: "jobs"}
	return map[string]authorizationv1.ResourceAttributes{
		"view":             {Verb: "get", Group: kueue.GroupName, Resource: "workloads"},
		"edit":             makeJobs,
		"admin":            makeJobs,
		"batch-user-role":  makeJobs,
		"batch-admin-role": {Verb: "update", Group: kueue.GroupName, Resource: "workloads"},
		"nvtopo-tenant":    {Verb: "create", Group: poolv1alpha1.GroupName, Resource: "elasticjobs"},
	}
}

// TestStatusRights: Kueue and the metering trust the status of Workloads, Jobs and pods. None of the
// users' roles of Kubernetes, Kueue and nvtopo may write one.
func TestStatusRights(t *testing.T) {
	s := newScenario(t)
	s.tenants(t, "a")
	roles := s.clusterRoles(t)
	believed := map[string][]string{
		"":                     {"pods"},
		"batch":                {"jobs"},
		kueue.GroupName:        {"workloads", "localqueues"},
		poolv1alpha1.GroupName: {"elasticjobs", "remotegpusessions", "usagerecords", "invoices"},
	}
	for name, purpose := range peoplesRoles() {
		person := s.personWith(t, "a", name, rulesOf(roles, name))
		may := func(a authorizationv1.ResourceAttributes) bool {
			a.Namespace = s.tenant("a")
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
			if err := person.Create(t.Context(), review); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return review.Status.Allowed
		}
		testkit.Soon(t, name+" counts", func() bool { return may(purpose) })
		for group, resources := range believed {
			for _, resource := range resources {
				for _, verb := range []string{"create", "update", "patch"} {
					if may(authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: "status"}) {
						t.Errorf("with %s a tenant may %s %s/status", name, verb, resource)
					}
				}
			}
		}
	}
}

// personWith returns a client of a user who has these rules in the namespace of a tenant.
func (s *scenario) personWith(t *testing.T, tenant, name string, rules []rbacv1.PolicyRule) client.Client {
	t.Helper()
	user := s.tenant(tenant) + "-with-" + name
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.tenant(tenant)}, Rules: rules}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := s.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	cfg := s.RESTConfig()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	person, err := client.New(cfg, client.Options{Scheme: kinds()})
	if err != nil {
		t.Fatal(err)
	}
	return person
}

// clusterRoles returns the ClusterRoles of the API server, and Kueue's for users, which the devcluster
// leaves out.
func (s *scenario) clusterRoles(t *testing.T) []rbacv1.ClusterRole {
	t.Helper()
	var served rbacv1.ClusterRoleList
	if err := s.List(t.Context(), &served); err != nil {
		t.Fatal(err)
	}
	_, config := testkit.Kueue(t)
	files, err := filepath.Glob(filepath.Join(config, "components", "rbac", "*_role.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no roles in %s: %v", config, err)
	}
	roles := served.Items
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var role rbacv1.ClusterRole
			if err := yaml.Unmarshal([]byte(document), &role); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if role.Kind == "ClusterRole" {
				roles = append(roles, role)
			}
		}
	}
	return roles
}

// rulesOf returns the rules of a ClusterRole. Those of an aggregating role are the aggregated ones, as
// its controller sets them, which the devcluster does not run.
func rulesOf(roles []rbacv1.ClusterRole, name string) (rules []rbacv1.PolicyRule) {
	for i := range roles {
		role := &roles[i]
		if role.Name != name {
			continue
		}
		if role.AggregationRule == nil {
			rules = append(rules, role.Rules...)
			continue
		}
		for _, wanted := range role.AggregationRule.ClusterRoleSelectors {
			for k := range roles {
				if selected := labels.SelectorFromSet(wanted.MatchLabels); selected.Matches(labels.Set(roles[k].Labels)) {
					rules = append(rules, rulesOf(roles, roles[k].Name)...)
				}
			}
		}
	}
	return rules
}
