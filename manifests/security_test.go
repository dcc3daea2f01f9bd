// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/nvtopo/nvtopo/internal/release"
)

// workload is what a Deployment or DaemonSet makes pods of.
type workload struct {
	meta *metav1.ObjectMeta
	spec *v1.PodSpec
}

// workloads are the shipped ones, by name.
func workloads(t *testing.T) map[string]workload {
	t.Helper()
	out := map[string]workload{}
	for _, list := range objects(t) {
		for _, obj := range list {
			switch o := obj.(type) {
			case *appsv1.Deployment:
				out[o.Name] = workload{&o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec}
			case *appsv1.DaemonSet:
				out[o.Name] = workload{&o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec}
			}
		}
	}
	if len(out) != 5 {
		t.Fatalf("%d workloads, want 5", len(out))
	}
	return out
}

// TestPodSecurity judges the pods by the code of Kubernetes' own admission, at the
// level restricted of this release. What an entry violates is in want, with the
// reason beside it.
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"nvtopo-scheduler":       nil,
		"nvtopo-exporter":        nil,
		"nvtopo-pool-controller": nil,
		"nvtopo-ui":              nil,
		"nvtopo-node-agent": {
			"restricted volume types", // hostPath: sockets of kubelet and of the device plugins, and its own state
			"runAsNonRoot != true",    // kubelet's folders and sockets are root's, and closed to others
			"runAsUser=0",             // likewise; without any of root's capabilities
		},
	}
	for name, w := range workloads(t) {
		t.Run(name, func(t *testing.T) {
			var got []string
			restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
			for _, r := range evaluator.EvaluatePod(restricted, w.meta, w.spec) {
				if !r.Allowed {
					got = append(got, r.ForbiddenReason)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(want[name], got); diff != "" {
				t.Errorf("violations of the level restricted (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodPrivileges is what the levels of pod security do not ask for.
func TestPodPrivileges(t *testing.T) {
	// Limits that a workload does without, and why.
	without := map[string]string{
		"nvtopo-scheduler memory":       "what it needs grows with the cluster, and without it nobody schedules",
		"nvtopo-scheduler cpu":          "as above",
		"nvtopo-pool-controller memory": "what it needs grows with the cluster, and without it no protected job is let in",
		"nvtopo-pool-controller cpu":    "as above",
		"nvtopo-node-agent cpu":         "throttled in the middle of an answer it would hold up kubelet",
		"nvtopo-exporter cpu":           "a reading that is throttled is late; its requests are its share of a busy node",
	}
	for name, w := range workloads(t) {
		t.Run(name, func(t *testing.T) {
			if w.spec.AutomountServiceAccountToken == nil || !*w.spec.AutomountServiceAccountToken {
				t.Error("the pod does not ask for the token that it needs: its account gives none by itself")
			}
			if w.spec.EnableServiceLinks == nil || *w.spec.EnableServiceLinks {
				t.Error("the environment lists all Services of the namespace")
			}
			if name != "nvtopo-ui" && !strings.HasPrefix(w.spec.PriorityClassName, "system-") { // nothing waits for the web view
				t.Errorf("priority class %q: others could take its place", w.spec.PriorityClassName)
			}
			if !confined(w.spec) {
				t.Error("the container has more rights on the node than it needs")
			}
			c := &w.spec.Containers[0]
			for _, resource := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
				if q := c.Resources.Requests[resource]; q.IsZero() {
					t.Errorf("it requests no %s", resource)
				}
				limit, limited := c.Resources.Limits[resource]
				key := name + " " + string(resource)
				if (without[key] == "") != limited {
					t.Errorf("limit of %s: %v, reason to have none: %q", resource, &limit, without[key])
				}
				delete(without, key)
			}
			for probe, p := range map[string]*v1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe, "startup": c.StartupProbe} {
				if p != nil && (p.HTTPGet == nil || p.HTTPGet.Scheme != v1.URISchemeHTTPS) {
					t.Errorf("the %s probe does not ask over HTTPS, and nothing else is served", probe)
				}
			}
			for _, e := range c.Env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
					t.Errorf("variable %s is a Secret's", e.Name)
				}
			}
		})
	}
	for _, key := range slices.Sorted(maps.Keys(without)) {
		t.Errorf("%s: a reason without a workload", key)
	}
}

// TestNamespaceSecurityLevel: the namespace admits its pods. Under a stricter level the agents
// would not be admitted; and what the others violate is to be seen in the audit log.
func TestNamespaceSecurityLevel(t *testing.T) {
	for _, list := range objects(t) {
		for _, obj := range list {
			ns, ok := obj.(*v1.Namespace)
			if !ok {
				continue
			}
			want := map[string]string{
				api.EnforceLevelLabel: string(api.LevelPrivileged), api.AuditLevelLabel: string(api.LevelRestricted), release.PartOfLabel: release.PartOf,
			}
			if diff := cmp.Diff(want, ns.Labels); diff != "" {
				t.Errorf("labels of %s (-want +got):\n%s", ns.Name, diff)
			}
			return
		}
	}
	t.Error("there is no namespace")
}

// asks: people reach the scheduler's loopback by port-forward, and show it a token of the one account that may do
// nothing but ask it.
func asks(role string, r *rbacv1.PolicyRule) bool {
	if role != "nvtopo-what-if" {
		return false
	}
	return cmp.Equal(r, &rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"get", "create"}}) ||
		cmp.Equal(r, &rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{"nvtopo-what-if"}, Verbs: []string{"create"},
		})
}

// TestRoleReach: no role reaches further. It reads what the roles say; test/integration asks the
// API server what they grant, and counts what is used.
func TestRoleReach(t *testing.T) {
	checked := 0
	deleted := map[string][]string{}
	// deletes are the kinds that an account makes and takes away again.
	deletes := map[string][]string{
		"nvtopo-pool-controller": {
			"usagerecords", "usagebatches", "invoices", "cohorts", "clusterqueues", "localqueues", "resourceflavors",
			"jobs", "services",
		},
		"nvtopo-tenant": {"elasticjobs", "remotegpusessions"}, // people's, in their namespaces
	}
	check := func(name string, rules []rbacv1.PolicyRule) {
		for _, r := range rules {
			checked++
			for _, word := range slices.Concat(r.Verbs, r.APIGroups, r.Resources, r.NonResourceURLs) {
				if strings.Contains(word, "*") {
					t.Errorf("%s: a wildcard: %v", name, r)
				}
			}
			for _, bad := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
				if slices.Contains(r.Verbs, bad) {
					t.Errorf("%s: verb %s: %v", name, bad, r)
				}
			}
			for _, resource := range r.Resources {
				if slices.Contains(r.Verbs, "delete") {
					deleted[name] = append(deleted[name], resource)
				}
			}
			for _, bad := range []string{
				"secrets", "serviceaccounts/token", "nodes/proxy", "pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers",
				"clusterroles", "roles", "validatingadmissionpolicies", "certificatesigningrequests",
			} {
				// The tokens of remote sessions are made, and never read again.
				writes := bad == "secrets" && name == "nvtopo-pool-controller" && slices.Equal(r.Verbs, []string{"create"})
				if slices.Contains(r.Resources, bad) && !writes && !asks(name, &r) {
					t.Errorf("%s: %s: %v", name, bad, r)
				}
			}
		}
	}
	stock := []string{"system:kube-scheduler", "system:volume-scheduler", "extension-apiserver-authentication-reader"}
	for _, list := range objects(t) {
		for _, obj := range list {
			switch o := obj.(type) {
			case *rbacv1.ClusterRole:
				check(o.Name, o.Rules)
			case *rbacv1.Role:
				check(o.Name, o.Rules)
			case *rbacv1.ClusterRoleBinding:
				if !strings.HasPrefix(o.RoleRef.Name, "nvtopo-") && !slices.Contains(stock, o.RoleRef.Name) {
					t.Errorf("%s binds %s", o.Name, o.RoleRef.Name)
				}
			case *rbacv1.RoleBinding:
				if !strings.HasPrefix(o.RoleRef.Name, "nvtopo-") && !slices.Contains(stock, o.RoleRef.Name) && o.Name != "night-window" { // an example's
					t.Errorf("%s binds %s", o.Name, o.RoleRef.Name)
				}
			case *v1.ServiceAccount:
				if o.AutomountServiceAccountToken == nil || *o.AutomountServiceAccountToken {
					t.Errorf("any pod with account %s gets its token", o.Name)
				}
			}
		}
	}
	sorted := cmpopts.SortSlices(strings.Compare)
	if diff := cmp.Diff(deletes, deleted, sorted); diff != "" {
		t.Errorf("what accounts delete (-want +got):\n%s", diff)
	}
	if checked < 10 {
		t.Errorf("only %d rules", checked)
	}
}
