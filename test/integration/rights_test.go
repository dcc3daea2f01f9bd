// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const accountPrefix = "system:serviceaccount:" + systemNamespace + ":"

// right is one thing that an account may do.
type right struct {
	verb, group, resource, subresource, namespace, name string
}

func (r right) String() string {
	s := r.verb + " " + r.resource
	if r.subresource != "" {
		s += "/" + r.subresource
	}
	if r.group != "" {
		s += "." + r.group
	}
	if r.name != "" {
		s += " " + r.name
	}
	if r.namespace != "" {
		s += " in " + r.namespace
	}
	return s
}

// rule is what some role grants, in one namespace or, with none, everywhere.
type rule struct {
	rbacv1.PolicyRule

	namespace string
}

// allows is RBAC's rule, without wildcards: there must be none.
func (r rule) allows(want right) bool {
	resource := want.resource
	if want.subresource != "" {
		resource += "/" + want.subresource
	}
	return slices.Contains(r.Verbs, want.verb) && slices.Contains(r.APIGroups, want.group) && slices.Contains(r.Resources, resource) &&
		(r.namespace == "" || r.namespace == want.namespace) && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, want.name))
}

// each calls f with everything that a rule grants, one by one.
func (r rule) each(f func(right)) {
	names := r.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, verb := range r.Verbs {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, name := range names {
					resource, sub, _ := strings.Cut(resource, "/")
					f(right{verb, group, resource, sub, r.namespace, name})
				}
			}
		}
	}
}

func everywhere(group string, resources, verbs []string) rule {
	return rule{PolicyRule: rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}}
}

func inProject(group string, resources, verbs []string, names ...string) rule {
	r := everywhere(group, resources, verbs)
	r.namespace, r.ResourceNames = systemNamespace, names
	return r
}

// expectedRights are what each account needs, written down a second time: the
// roles in manifests/rbac have to say the same, and no more.
func expectedRights() map[string][]rule {
	list := func(s ...string) []string { return s }
	const topology, leases, events = v1alpha1.GroupName, "coordination.k8s.io", "events.k8s.io"
	graphs, status := list("nodegputopologies"), list("nodegputopologies/status")
	reviews := []rule{
		everywhere("authentication.k8s.io", list("tokenreviews"), list("create")),
		everywhere("authorization.k8s.io", list("subjectaccessreviews"), list("create")),
	}
	return map[string][]rule{
		schedulerAccount: { // beside what kube-scheduler may do
			everywhere("", list("pods"), list("patch")),
			everywhere("", list("pods/eviction"), list("create")),
			everywhere(topology, graphs, list("list", "watch", "write-any")),
			everywhere(topology, status, list("patch")),
			everywhere(topology, list("clustertopologies"), list("list", "watch")),
			everywhere(topology, list("clustertopologies/status"), list("patch")),
			everywhere(topology, list("allocations"), list("write")),
			inProject(leases, list("leases"), list("list", "watch", "create")),
			inProject(leases, list("leases"), list("get", "update"), "nvtopo-scheduler", "nvtopo-controller"),
		},
		exporterAccount: append([]rule{
			everywhere("", list("nodes"), list("get", "patch")),
			everywhere(topology, graphs, list("get", "create", "patch", "report-hardware")),
			everywhere(topology, status, list("patch")),
			inProject(leases, list("leases"), list("create", "patch")),
		}, reviews...),
		agentAccount: append([]rule{
			everywhere("", list("nodes", "nodes/configz"), list("get")),
			everywhere("", list("pods"), list("list", "watch")),
			everywhere(topology, graphs, list("list", "watch", "report-allocations")),
			everywhere(topology, status, list("patch")),
			everywhere(events, list("events"), list("create", "patch")),
			inProject(leases, list("leases"), list("create", "patch")),
		}, reviews...),
	}
}

// unused lists what is granted although no request shows it, with the reason.
func unused() map[string]string {
	const asked = "no request has this verb: the admission policies ask the authorizer for it"
	const applied = "server-side apply is a patch in the log, and needs this where the object is not there yet"
	const streamed = "informers stream the first list through a watch, and list where an API server or a proxy cannot do that"
	const groups = "only where PodGroups are defined: TestGangsOfPodGroups uses it"
	return map[string]string{
		schedulerAccount + ": get podgroups.scheduling.x-k8s.io":                      groups,
		schedulerAccount + ": create pods/eviction":                                   "only of a gang that was never whole: TestANewLeaderAndGangs uses it",
		schedulerAccount + ": list podgroups.scheduling.x-k8s.io":                     groups,
		schedulerAccount + ": watch podgroups.scheduling.x-k8s.io":                    groups,
		schedulerAccount + ": patch podgroups.scheduling.x-k8s.io":                    groups,
		schedulerAccount + ": list nodegputopologies." + v1alpha1.GroupName:           streamed,
		schedulerAccount + ": patch nodegputopologies/status." + v1alpha1.GroupName:   "only of a graph that nobody vouches for, and here all are fresh",
		schedulerAccount + ": list clustertopologies." + v1alpha1.GroupName:           streamed,
		schedulerAccount + ": patch clustertopologies/status." + v1alpha1.GroupName:   "only of the fabric's description, and here is none",
		schedulerAccount + ": list leases.coordination.k8s.io in " + systemNamespace:  streamed,
		agentAccount + ": list pods":                                                  streamed + "; and a question about a pod that the watch does not have yet",
		agentAccount + ": list nodegputopologies." + v1alpha1.GroupName:               streamed,
		exporterAccount + ": create nodegputopologies." + v1alpha1.GroupName:          applied,
		exporterAccount + ": create leases.coordination.k8s.io in " + systemNamespace: applied,
		agentAccount + ": create leases.coordination.k8s.io in " + systemNamespace:    applied,
		schedulerAccount + ": write allocations." + v1alpha1.GroupName:                asked,
		schedulerAccount + ": write-any nodegputopologies." + v1alpha1.GroupName:      asked,
		exporterAccount + ": report-hardware nodegputopologies." + v1alpha1.GroupName: asked,
		agentAccount + ": report-allocations nodegputopologies." + v1alpha1.GroupName: asked,
		agentAccount + ": get nodes/configz":                                          "the request goes to kubelet, which asks the API server whether it may answer",
	}
}

// stockRoles are Kubernetes' own that the scheduler is bound to.
func stockRoles() []string { return []string{"system:kube-scheduler", "system:volume-scheduler"} }

// testGrants compares the answers of the API server's authorizer, for every verb
// on every resource that it serves, with what is expected: nothing more, and
// nothing less.
func testGrants(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	all := append(served(t, client), unserved()...)
	for account, rules := range expectedRights() {
		t.Run(account, func(t *testing.T) {
			stock := []string{"system:basic-user"} // every authenticated user's
			if account == schedulerAccount {
				stock = append(stock, stockRoles()...)
			}
			for _, name := range stock {
				role, err := client.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range role.Rules {
					rules = append(rules, rule{PolicyRule: r})
				}
			}
			if account == schedulerAccount {
				rules = append(rules, rule{
					PolicyRule: rbacv1.PolicyRule{
						Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps"},
						ResourceNames: []string{"extension-apiserver-authentication"},
					}, namespace: metav1.NamespaceSystem,
				})
			}
			wrong, allowed := compareRights(t, client, account, all, rules)
			for _, w := range wrong {
				t.Error(w)
			}
			if allowed < 5 {
				t.Errorf("only %d requests are allowed, of an account that needs more", allowed)
			}
			t.Logf("%s: %d combinations of verb and resource asked for, %d allowed", account, len(all), allowed)
		})
	}
}

func compareRights(t *testing.T, client kubernetes.Interface, account string, all []right, rules []rule) (wrong []string, allowed int) {
	t.Helper()
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(8)
	for _, r := range all {
		g.Go(func() error {
			review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{
					User:   accountPrefix + account,
					Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace, "system:authenticated"},
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Name: r.name,
					},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			want := slices.ContainsFunc(rules, func(rule rule) bool { return rule.allows(r) })
			mu.Lock()
			defer mu.Unlock()
			if review.Status.Allowed {
				allowed++
			}
			if review.Status.Allowed != want {
				wrong = append(wrong, fmt.Sprintf("may %s: %t, want %t (%s)", r, review.Status.Allowed, want, review.Status.Reason))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(wrong)
	return wrong, allowed
}

// served lists every verb on every resource of the API server, in three namespaces.
func served(t *testing.T, client kubernetes.Interface) []right {
	t.Helper()
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var out []right
	for _, list := range lists {
		group, _, found := strings.Cut(list.GroupVersion, "/")
		if !found {
			group = ""
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			resource, sub, _ := strings.Cut(r.Name, "/")
			namespaces := []string{""}
			if r.Namespaced {
				namespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, systemNamespace}
			}
			for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
				for _, namespace := range namespaces {
					out = append(out, right{verb, group, resource, sub, namespace, ""})
				}
			}
		}
	}
	if len(out) < 1000 {
		t.Errorf("only %d combinations of verb and resource", len(out))
	}
	return out
}

// unserved are rights that discovery does not list: verbs without a request,
// kubelet's own endpoints, and single objects.
func unserved() []right {
	out := []right{
		{verb: "impersonate", resource: "users"},
		{verb: "impersonate", resource: "groups"},
		{verb: "impersonate", resource: "serviceaccounts", namespace: systemNamespace},
		{verb: "impersonate", group: "authentication.k8s.io", resource: "userextras", subresource: "authentication.kubernetes.io/node-name"},
		{verb: "approve", group: "certificates.k8s.io", resource: "signers", name: "kubernetes.io/kube-apiserver-client"},
		{verb: "sign", group: "certificates.k8s.io", resource: "signers", name: "kubernetes.io/kube-apiserver-client"},
		{verb: "get", resource: "configmaps", namespace: metav1.NamespaceSystem, name: "extension-apiserver-authentication"},
		{verb: "get", resource: "configmaps", namespace: metav1.NamespaceSystem, name: "kubeadm-config"},
		{verb: "create", resource: "serviceaccounts", subresource: "token", namespace: systemNamespace, name: schedulerAccount},
	}
	for _, verb := range []string{"bind", "escalate"} {
		for _, resource := range []string{"roles", "clusterroles"} {
			out = append(out, right{verb: verb, group: rbacv1.GroupName, resource: resource})
		}
	}
	for _, sub := range []string{"proxy", "stats", "log", "spec", "metrics", "configz", "healthz", "pods", "checkpoint", "statusz", "flagz"} {
		out = append(out, right{verb: "get", resource: "nodes", subresource: sub}, right{verb: "create", resource: "nodes", subresource: sub})
	}
	for _, verb := range []string{"write-any", "report-hardware", "report-allocations", "write", "get"} {
		out = append(out, right{verb: verb, group: v1alpha1.GroupName, resource: "nodegputopologies"},
			right{verb: verb, group: v1alpha1.GroupName, resource: "allocations"})
	}
	for _, verb := range []string{"get", "update", "patch", "delete"} {
		for _, name := range []string{"nvtopo-scheduler", "nvtopo-controller", "exporter-n1", "agent-n1"} {
			out = append(out, right{verb: verb, group: "coordination.k8s.io", resource: "leases", namespace: systemNamespace, name: name})
		}
		out = append(out, right{verb: verb, group: "coordination.k8s.io", resource: "leases", namespace: metav1.NamespaceSystem, name: "kube-controller-manager"})
	}
	return out
}

// TestRights runs the three programs as they are shipped, each with the rights of
// its own account alone and as talkative as it gets, through what they do.
func TestRights(t *testing.T) {
	l := newLab(t, devcluster.Config{AuditLog: true})
	l.install(t)
	t.Run("granted", func(t *testing.T) { testGrants(t, l.client) })
	p := runPrograms(t, l)
	p.work(t)
	p.end(t)
	time.Sleep(time.Second) // the log's last lines
	t.Run("used", func(t *testing.T) { testUse(t, l) })
	t.Run("printed", p.testLogs)
}
