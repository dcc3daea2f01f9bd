// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/rights"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/cli/leaderclient"
)

// whatIfAccount is the account whose tokens a scheduler is shown.
const whatIfAccount = leaderclient.Account

// operatorAccount makes an account that may create pods, list PriorityClasses and, if it may ask, what the shipped
// Role says. It returns the account's kubeconfig.
func (e *testEnv) operatorAccount(t *testing.T, name string, mayAsk bool) (kubeconfig string) {
	t.Helper()
	config := account(t, e, name)
	e.makeRole(t, "operator:"+name, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}},
		{APIGroups: []string{"scheduling.k8s.io"}, Resources: []string{"priorityclasses"}, Verbs: []string{"list"}},
	})
	bindCluster(t, e.client, name, "operator:"+name)
	if mayAsk {
		e.mayAsk(t, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceDefault})
	}
	return kubeconfigOf(t, config)
}

func (e *testEnv) makeRole(t *testing.T, name string, rules []rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := e.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// mayAsk gives somebody the shipped Role, as its refusals say.
func (e *testEnv) mayAsk(t *testing.T, who rbacv1.Subject) {
	t.Helper()
	_, err := e.client.RbacV1().RoleBindings(systemNamespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "may-ask:" + who.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: leaderclient.Role}, Subjects: []rbacv1.Subject{who},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func kubeconfigOf(t *testing.T, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := devcluster.WriteKubeconfigOf(config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// runNvtopo runs the command nvtopo.
func runNvtopo(ctx context.Context, args ...string) (out string, err error) {
	var text, words bytes.Buffer
	cmd := cli.New("nvtopo")
	cmd.SetArgs(args)
	cmd.SetOut(&text)
	cmd.SetErr(&words)
	err = cmd.ExecuteContext(ctx)
	return text.String() + words.String(), err
}

// TestWhatIfFindsScheduler: as installed, one command asks the scheduler that leads, for somebody with the shipped
// Role; it saves a snapshot as well. Who may not is told what is missing and who grants it.
func TestWhatIfFindsScheduler(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.node(t, "n1", "dgx1-v100")
	asked := filepath.Join(t.TempDir(), "pod.yaml")
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  schedulerName: topology-aware-scheduler
  containers: [{name: main, image: example.com/app:1, resources: {limits: {nvidia.com/gpu: 4}}}]
`
	if err := os.WriteFile(asked, []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	operator, stranger := l.operatorAccount(t, "operator", true), l.operatorAccount(t, "stranger", false)
	refused := func(kubeconfig string, wants ...string) {
		t.Helper()
		out, err := runNvtopo(t.Context(), "what-if", "-f", asked, "--kubeconfig", kubeconfig)
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) || cli.ExitCode(err) != cli.ExitInput {
				t.Errorf("%v %s, want exit code %d and %q", err, out, cli.ExitInput, want)
			}
		}
	}
	refused(operator, "ConfigMap nvtopo-system/nvtopo-scheduler-profiles is empty: no scheduler has led yet", "kubectl -n nvtopo-system get deploy,pods")
	scheduler := l.startShipped(t, manifests.SchedulerConfigPath)
	testkit.Eventually(t, waitLimit, "one command asks the scheduler that leads", func(ctx context.Context) (bool, string) {
		out, err := runNvtopo(ctx, "what-if", "-f", asked, "--kubeconfig", operator)
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(out, "default/train  Placed   n1") && strings.Contains(out, "default/train on n1: no other node would take it\n"), out
	})
	saved := filepath.Join(t.TempDir(), "saved.jsonl")
	if out, err := runNvtopo(t.Context(), "snapshot", "save", "-o", saved, "--kubeconfig", operator); err != nil {
		t.Errorf("a snapshot: %v %s", err, out)
	}
	program := testkit.Program(t, "nvtopo-scheduler")
	if out, err := runNvtopo(t.Context(), "what-if", "-f", asked, "--snapshot", saved, "--program", program); err != nil || !strings.Contains(out, "default/train  Placed   n1") {
		t.Errorf("by the snapshot: %v %s", err, out)
	}
	refused(stranger, "ConfigMap nvtopo-system/nvtopo-scheduler-profiles: ", "cannot get resource", "kubectl -n nvtopo-system create rolebinding NAME --role=nvtopo-what-if --user=USER")

	if err := scheduler.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused(operator, "no scheduler leads") // its Lease is given back, or not renewed
	t.Run("rights", l.testWhatIfRights)
}

// testWhatIfRights compares what the shipped Role and the account for questions grant with what they are to grant.
func (e *testEnv) testWhatIfRights(t *testing.T) {
	const bound = "asker-with-role"
	e.mayAsk(t, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: bound, Namespace: systemNamespace})
	list := func(s ...string) []string { return s }
	role, err := e.client.RbacV1().ClusterRoles().Get(t.Context(), "system:basic-user", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var everybody []rights.Rule
	for _, r := range role.Rules {
		everybody = append(everybody, rights.Rule{PolicyRule: r})
	}
	all := append(served(t, e.client), unserved()...)
	for _, name := range []string{whatIfAccount, schedulerAccount} {
		all = append(all, rights.Right{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: systemNamespace, Name: name})
	}
	for _, verb := range []string{"get", "update", "patch", "delete"} {
		all = append(all, rights.Right{Verb: verb, Resource: "configmaps", Namespace: systemNamespace, Name: "nvtopo-scheduler-profiles"})
	}
	for name, rules := range map[string][]rights.Rule{
		whatIfAccount: everybody,
		bound: append(slices.Clone(everybody),
			inProject("", list("configmaps"), list("get"), "nvtopo-scheduler-profiles"),
			inProject("coordination.k8s.io", list("leases"), list("get"), "nvtopo-scheduler"),
			inProject("", list("pods"), list("get")),
			inProject("", list("pods/portforward"), list("get", "create")),
			inProject("", list("serviceaccounts/token"), list("create"), whatIfAccount),
		),
	} {
		wrong, allowed := compareRights(t, e.client, name, all, rules)
		for _, w := range wrong {
			t.Errorf("%s %s", name, w)
		}
		if allowed == 0 {
			t.Errorf("%s: no request is allowed", name)
		}
	}
}
