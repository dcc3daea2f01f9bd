// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/rights"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const accountPrefix = "system:serviceaccount:" + systemNamespace + ":"

// inProject is a rule that counts in the project's namespace.
func inProject(group string, resources, verbs []string, names ...string) rights.Rule {
	return rights.In(systemNamespace, group, resources, verbs, names...)
}

// expectedRights are what each account needs, written down a second time: the
// roles in manifests/rbac have to say the same, and no more.
func expectedRights() map[string][]rights.Rule {
	list := func(s ...string) []string { return s }
	const topology, leases, events = v1alpha1.GroupName, "coordination.k8s.io", "events.k8s.io"
	graphs, status := list("nodegputopologies"), list("nodegputopologies/status")
	reviews := []rights.Rule{
		rights.Everywhere("authentication.k8s.io", list("tokenreviews"), list("create")),
		rights.Everywhere("authorization.k8s.io", list("subjectaccessreviews"), list("create")),
	}
	return map[string][]rights.Rule{
		poolControllerAccount: append(poolControllerRights(), reviews...),
		schedulerAccount: { // beside what kube-scheduler may do
			rights.Everywhere("", list("pods"), list("patch")),
			rights.Everywhere("", list("pods/eviction"), list("create")),
			rights.Everywhere(topology, graphs, list("list", "watch", "write-any")),
			rights.Everywhere(topology, status, list("patch")),
			rights.Everywhere(topology, list("clustertopologies"), list("list", "watch")),
			rights.Everywhere(topology, list("clustertopologies/status"), list("patch")),
			rights.Everywhere(topology, list("allocations"), list("write")),
			inProject(leases, list("leases"), list("list", "watch", "create")),
			inProject(leases, list("leases"), list("get", "update"), "nvtopo-scheduler", "nvtopo-controller"),
		},
		exporterAccount: append([]rights.Rule{
			rights.Everywhere("", list("nodes"), list("get", "patch")),
			rights.Everywhere(topology, graphs, list("get", "create", "patch", "report-hardware")),
			rights.Everywhere(topology, status, list("patch")),
			inProject(leases, list("leases"), list("create", "patch")),
		}, reviews...),
		agentAccount: append([]rights.Rule{
			rights.Everywhere("", list("nodes", "nodes/configz"), list("get")),
			rights.Everywhere("", list("pods"), list("list", "watch")),
			rights.Everywhere(topology, graphs, list("list", "watch", "report-allocations")),
			rights.Everywhere(topology, status, list("patch")),
			rights.Everywhere(events, list("events"), list("create", "patch")),
			inProject(leases, list("leases"), list("create", "patch")),
		}, reviews...),
	}
}

// unused lists by account what is granted although no request shows it, with the reason.
func unused() map[string]map[string]string {
	const asked = "no request has this verb: the admission policies ask the authorizer for it"
	const applied = "server-side apply is a patch in the log, and needs this where the object is not there yet"
	const streamed = "informers stream the first list through a watch, and list where an API server or a proxy cannot do that"
	const groups = "only where PodGroups are defined: TestPodGroups uses it"
	return map[string]map[string]string{
		schedulerAccount: {
			"get podgroups.scheduling.x-k8s.io":                     groups,
			"create pods/eviction":                                  "only of a gang that was never whole: TestGangFailover uses it",
			"list podgroups.scheduling.x-k8s.io":                    groups,
			"watch podgroups.scheduling.x-k8s.io":                   groups,
			"patch podgroups.scheduling.x-k8s.io":                   groups,
			"list nodegputopologies." + v1alpha1.GroupName:          streamed,
			"patch nodegputopologies/status." + v1alpha1.GroupName:  "only of a graph that nobody vouches for, and here all are fresh",
			"list clustertopologies." + v1alpha1.GroupName:          streamed,
			"patch clustertopologies/status." + v1alpha1.GroupName:  "only of the fabric's description, and here is none",
			"list leases.coordination.k8s.io in " + systemNamespace: streamed,
			"write allocations." + v1alpha1.GroupName:               asked,
			"write-any nodegputopologies." + v1alpha1.GroupName:     asked,
		},
		agentAccount: {
			"list pods": streamed + "; and a question about a pod that the watch does not have yet",
			"list nodegputopologies." + v1alpha1.GroupName:               streamed,
			"create leases.coordination.k8s.io in " + systemNamespace:    applied,
			"report-allocations nodegputopologies." + v1alpha1.GroupName: asked,
			"get nodes/configz": "the request goes to kubelet, which asks the API server whether it may answer",
		},
		exporterAccount: {
			"create nodegputopologies." + v1alpha1.GroupName:          applied,
			"create leases.coordination.k8s.io in " + systemNamespace: applied,
			"report-hardware nodegputopologies." + v1alpha1.GroupName: asked,
		},
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
					rules = append(rules, rights.Rule{PolicyRule: r})
				}
			}
			if account == schedulerAccount {
				rules = append(rules, rights.Rule{
					PolicyRule: rbacv1.PolicyRule{
						Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps"},
						ResourceNames: []string{"extension-apiserver-authentication"},
					}, Namespace: metav1.NamespaceSystem,
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

func compareRights(t *testing.T, client kubernetes.Interface, account string, all []rights.Right, rules []rights.Rule) (wrong []string, allowed int) {
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
						Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
					},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			want := slices.ContainsFunc(rules, func(rule rights.Rule) bool { return rule.Allows(r) })
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
func served(t *testing.T, client kubernetes.Interface) []rights.Right {
	t.Helper()
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var out []rights.Right
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
					out = append(out, rights.Right{Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace})
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
func unserved() []rights.Right {
	out := []rights.Right{
		{Verb: "impersonate", Resource: "users"},
		{Verb: "impersonate", Resource: "groups"},
		{Verb: "impersonate", Resource: "serviceaccounts", Namespace: systemNamespace},
		{Verb: "impersonate", Group: "authentication.k8s.io", Resource: "userextras", Subresource: "authentication.kubernetes.io/node-name"},
		{Verb: "approve", Group: "certificates.k8s.io", Resource: "signers", Name: "kubernetes.io/kube-apiserver-client"},
		{Verb: "sign", Group: "certificates.k8s.io", Resource: "signers", Name: "kubernetes.io/kube-apiserver-client"},
		{Verb: "get", Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"},
		{Verb: "get", Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: systemNamespace, Name: schedulerAccount},
	}
	for _, verb := range []string{"bind", "escalate"} {
		for _, resource := range []string{"roles", "clusterroles"} {
			out = append(out, rights.Right{Verb: verb, Group: rbacv1.GroupName, Resource: resource})
		}
	}
	for _, sub := range []string{"proxy", "stats", "log", "spec", "metrics", "configz", "healthz", "pods", "checkpoint", "statusz", "flagz"} {
		out = append(out, rights.Right{Verb: "get", Resource: "nodes", Subresource: sub}, rights.Right{Verb: "create", Resource: "nodes", Subresource: sub})
	}
	for _, verb := range []string{"write-any", "report-hardware", "report-allocations", "write", "get"} {
		out = append(out, rights.Right{Verb: verb, Group: v1alpha1.GroupName, Resource: "nodegputopologies"},
			rights.Right{Verb: verb, Group: v1alpha1.GroupName, Resource: "allocations"})
	}
	out = append(out, ofPools()...)
	for _, verb := range []string{"get", "update", "patch", "delete"} {
		for _, name := range []string{"nvtopo-scheduler", "nvtopo-controller", "nvtopo-pool-controller", "nvtopo-pool-metering", "exporter-n1", "agent-n1"} {
			out = append(out, rights.Right{Verb: verb, Group: "coordination.k8s.io", Resource: "leases", Namespace: systemNamespace, Name: name})
		}
		out = append(out, rights.Right{Verb: verb, Group: "coordination.k8s.io", Resource: "leases", Namespace: metav1.NamespaceSystem, Name: "kube-controller-manager"})
	}
	return out
}

// awaitAudit waits until the audit log has a request that is made now, and so those before.
func awaitAudit(t *testing.T, l *testEnv) {
	t.Helper()
	const fence = "audit-fence"
	if _, err := l.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fence}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, waitLimit, "the audit log has the last request", func(context.Context) (bool, string) {
		log, err := os.ReadFile(l.AuditLog())
		return err == nil && bytes.Contains(log, []byte(fence)), fmt.Sprint(err)
	})
}

// TestRights asks what the accounts may do, and runs three of the programs as they are shipped, each with the rights of
// its own account alone and as talkative as it gets, through what they do.
func TestRights(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{AuditLog: true})
	l.install(t)
	if err := l.ApplyManifests(t.Context(), manifests.Pools); err != nil {
		t.Fatal(err)
	}
	t.Run("granted", func(t *testing.T) { testGrants(t, l.client) })
	p := runPrograms(t, l)
	p.work(t)
	p.end(t)
	awaitAudit(t, l)
	t.Run("used", func(t *testing.T) { testUse(t, l) })
	t.Run("printed", p.testLogs)
}
