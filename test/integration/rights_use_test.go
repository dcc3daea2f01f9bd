// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/rights"
)

// testUse compares what the roles of the project grant with what was asked for:
// what nobody uses is not granted, and what somebody needs is not refused. The
// pool controller is not run here: test/pools does the same for it.
func testUse(t *testing.T, l *testEnv) {
	t.Helper()
	f, err := os.Open(l.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	requests, err := rights.Requests(f)
	if err != nil {
		t.Fatal(err)
	}
	granted, reasons := projectRules(t, l.client), unused()
	for _, account := range []string{schedulerAccount, exporterAccount, agentAccount} {
		asked := requests[accountPrefix+account]
		if len(asked) == 0 {
			t.Errorf("%s made no request", account)
		}
		for r, code := range asked {
			if code == 403 || code == 401 {
				t.Errorf("%s was refused: %s", account, r)
			}
		}
		for _, fault := range rights.Unused(granted[account], asked, reasons[account]) {
			t.Errorf("%s: %s", account, fault)
		}
	}
}

// projectRules are what the project's own roles grant, by account; the bindings
// to other roles are checked on the way.
func projectRules(t *testing.T, client kubernetes.Interface) map[string][]rights.Rule {
	t.Helper()
	out := map[string][]rights.Rule{}
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
				out[s.Name] = append(out[s.Name], rights.Rule{PolicyRule: r, Namespace: namespace})
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
