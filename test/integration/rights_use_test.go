// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// testUse compares what the roles of the project grant with what was asked for:
// what nobody uses is not granted, and what somebody needs is not refused.
func testUse(t *testing.T, l *lab) {
	t.Helper()
	requests := accountRequests(t, l.AuditLog())
	granted := projectRules(t, l.client)
	reasons := unused()
	for _, account := range []string{schedulerAccount, exporterAccount, agentAccount} {
		if len(requests[account]) == 0 {
			t.Errorf("%s made no request", account)
		}
		for r, code := range requests[account] {
			if code == 403 || code == 401 {
				t.Errorf("%s was refused: %s", account, r)
			}
		}
		for _, g := range granted[account] {
			g.each(func(r right) {
				one := rule{PolicyRule: rbacv1.PolicyRule{
					Verbs: []string{r.verb}, APIGroups: []string{r.group}, Resources: []string{strings.TrimSuffix(r.resource+"/"+r.subresource, "/")},
				}, namespace: g.namespace}
				if r.name != "" {
					one.ResourceNames = []string{r.name}
				}
				used := slices.ContainsFunc(slices.Collect(maps.Keys(requests[account])), one.allows)
				key := account + ": " + r.String()
				switch reason := reasons[key]; {
				case !used && reason == "":
					t.Errorf("%s: granted, and never used", key)
				case used && reason != "":
					t.Errorf("%s: used, although %q", key, reason)
				}
				delete(reasons, key)
			})
		}
	}
	for key := range reasons {
		t.Errorf("%s: has a reason to be unused, and is not granted", key)
	}
}

// accountRequests reads from the audit log what each of the project's accounts
// asked for, with the worst answer.
func accountRequests(t *testing.T, path string) map[string]map[right]int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]map[right]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      *struct{ APIGroup, Resource, Subresource, Namespace, Name string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // a line that is being written
		}
		account, ours := strings.CutPrefix(e.User.Username, accountPrefix)
		if !ours || e.ObjectRef == nil {
			continue
		}
		if out[account] == nil {
			out[account] = map[right]int{}
		}
		o := e.ObjectRef
		r := right{e.Verb, o.APIGroup, o.Resource, o.Subresource, o.Namespace, o.Name}
		out[account][r] = max(out[account][r], e.ResponseStatus.Code)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// projectRules are what the project's own roles grant, by account; the bindings
// to other roles are checked on the way.
func projectRules(t *testing.T, client kubernetes.Interface) map[string][]rule {
	t.Helper()
	out := map[string][]rule{}
	foreign := map[string][]string{}
	add := func(subjects []rbacv1.Subject, ref rbacv1.RoleRef, namespace string) {
		for _, s := range subjects {
			if s.Kind != rbacv1.ServiceAccountKind || s.Namespace != systemNamespace {
				continue
			}
			if !strings.HasPrefix(ref.Name, "nvtopo-") {
				foreign[s.Name] = append(foreign[s.Name], strings.TrimPrefix(namespace+"/"+ref.Name, "/"))
				continue
			}
			rules, err := rulesOf(t.Context(), client, ref, namespace)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rules {
				out[s.Name] = append(out[s.Name], rule{r, namespace})
			}
		}
	}
	clusterBindings, err := client.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range clusterBindings.Items {
		add(b.Subjects, b.RoleRef, "")
	}
	bindings, err := client.RbacV1().RoleBindings(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bindings.Items {
		add(b.Subjects, b.RoleRef, b.Namespace)
	}
	want := map[string][]string{schedulerAccount: append(stockRoles(), metav1.NamespaceSystem+"/extension-apiserver-authentication-reader")}
	if diff := cmp.Diff(want, foreign); diff != "" {
		t.Errorf("roles that are not the project's (-want +bound):\n%s", diff)
	}
	return out
}

func rulesOf(ctx context.Context, client kubernetes.Interface, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	if ref.Kind == "ClusterRole" {
		role, err := client.RbacV1().ClusterRoles().Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	}
	role, err := client.RbacV1().Roles(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return role.Rules, nil
}
