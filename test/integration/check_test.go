// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// debugArgs returns the argument that makes the scheduler serve its state, and the URL.
func debugArgs(t *testing.T) (args map[string]string, url string) {
	t.Helper()
	port, err := devcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	arg := "debugAddress: " + address
	return map[string]string{topologyPlugin: arg, numaPlugin: arg}, "https://" + address
}

// bearer sends a token with every request; it trusts any certificate, since the scheduler signs its own.
type bearer struct {
	token string
	base  http.RoundTripper
}

func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if b.token != "" {
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.base.RoundTrip(req)
}

func bearerClient(token string) *http.Client {
	return &http.Client{Timeout: waitLimit, Transport: &bearer{token, &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // a test's own scheduler
	}}}
}

// checkerAccount creates an account with the shipped role for checking.
func (e *testEnv) checkerAccount(t *testing.T, name string, bind bool) (token string) {
	t.Helper()
	if _, err := e.client.CoreV1().ServiceAccounts(systemNamespace).Create(t.Context(), &v1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if bind {
		if _, err := e.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nvtopo-checker"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: systemNamespace}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	config, err := e.ServiceAccountConfig(t.Context(), systemNamespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return config.BearerToken
}

// look reads the cluster and its schedulers.
func (e *testEnv) look(t *testing.T, client *http.Client, schedulers ...string) *check.World {
	t.Helper()
	w, err := check.Read(t.Context(), e.client, systemNamespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range schedulers {
		d, err := check.ReadScheduler(t.Context(), client, url)
		if err != nil {
			t.Fatal(err)
		}
		w.Schedulers = append(w.Schedulers, *d)
	}
	return w
}

// keepsPromises fails on every present violation of the checker, and unless it compared the given number
// of pods' allocations with their nodes' graphs.
func (e *testEnv) keepsPromises(t *testing.T, allocations int, profiles ...string) {
	t.Helper()
	w := e.look(t, nil)
	for _, name := range profiles {
		w.Profiles = append(w.Profiles, diagnosis.Profile{Name: name})
	}
	r := check.Examine(w)
	for _, v := range r.Violations {
		testkit.Violation(t, "%s", v)
	}
	if r.Checked.Allocations != allocations {
		t.Errorf("the checker compared %d allocations, want %d", r.Checked.Allocations, allocations)
	}
}

func TestChecker(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	args, url := debugArgs(t)
	l.startScheduler(t, profile{name: "checked", write: "PreBind", args: args})
	l.node(t, "n1", "dgx1-v100")
	l.node(t, "n2", "dgx1-v100")
	client := bearerClient(l.checkerAccount(t, "auditor", true))

	pods := []*v1.Pod{
		gpuPod("pair", "checked", 2).Annotation(podrequest.MinLinkKey, "NV1").Obj(),
		gpuPod("single", "checked", 1).Obj(),
		gpuPod("two-containers", "checked", 0).
			Annotations(notes{podrequest.TopologyPolicyKey: "single-numa-node"}).Containers(container("left", 2), container("right", 2)).Obj(),
		gpuPod("foreign", v1.DefaultSchedulerName, 1).Obj(),
	}
	pods[1].Spec.InitContainers = []v1.Container{container("prepare", 1)}
	for _, p := range pods {
		l.create(t, p)
		l.bound(t, p.Name)
	}

	t.Run("a clean cluster is clean", func(t *testing.T) {
		k := check.NewChecker(2 * waitLimit) // pending findings are waited for
		var r *check.Report
		testkit.Eventually(t, waitLimit, "nothing is pending", func(context.Context) (bool, string) {
			r = k.Examine(l.look(t, client, url))
			return len(r.Pending) == 0, fmt.Sprint(r.Pending)
		})
		if len(r.Violations) > 0 {
			testkit.Violation(t, "%v", r.Violations)
		}
		want := check.Checked{Pods: 4, Allocations: 3, Foreign: 1, Nodes: 2, Schedulers: 1}
		got := r.Checked
		got.Claims, got.Records = 0, 0
		if got != want {
			t.Errorf("looked at %+v, want %+v", got, want)
		}
	})

	t.Run("the scheduler's state tells of nodes and profiles", func(t *testing.T) {
		d := l.look(t, client, url).Schedulers[0]
		if !d.Synced || d.LastSweep == nil || d.RequestTimeout.Duration != requestTimeout || len(d.Nodes) != 2 || !d.Nodes[0].Counts {
			t.Errorf("state %+v", d)
		}
		want := diagnosis.Profile{Name: "checked", Resources: []string{string(gpuResource)}, DefaultPolicy: "best-effort"}
		if len(d.Profiles) != 1 || d.Profiles[0].Name != want.Name || d.Profiles[0].DefaultPolicy != want.DefaultPolicy {
			t.Errorf("profiles %+v, want %+v", d.Profiles, want)
		}
	})

	t.Run("strangers are refused", func(t *testing.T) {
		cases := map[string]struct {
			client *http.Client
			want   string
		}{
			"without a token":             {bearerClient(""), "401"},
			"with a token of nobody":      {bearerClient("nobody"), "401"},
			"an account without the role": {bearerClient(l.checkerAccount(t, "stranger", false)), "403"},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				if _, err := check.ReadScheduler(t.Context(), tc.client, url); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %s", err, tc.want)
				}
			})
		}
	})

	t.Run("a GPU annotated twice by an administrator is named", func(t *testing.T) {
		victim := l.get(t, "pair")
		a, err := allocation.Parse(victim.Annotations[allocation.Key])
		if err != nil {
			t.Fatal(err)
		}
		thief := gpuPod("thief", "checked", 2).Obj()
		thief.Spec.NodeName = victim.Spec.NodeName // bound by hand
		l.create(t, thief)
		stolen := *l.get(t, "thief")
		a.PodUID = stolen.UID
		text, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, allocation.Key, text)
		if _, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(t.Context(), "thief", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		got := check.Check(l.look(t, client, url))
		if len(got) != 1 || got[0].Invariant != check.SharedByAnnotation {
			t.Fatalf("violations %v, want one %s", got, check.SharedByAnnotation)
		}
		for _, p := range []*v1.Pod{victim, &stolen} {
			want := check.Object{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
			if !slices.Contains(got[0].Objects, want) {
				t.Errorf("objects %v lack %v", got[0].Objects, want)
			}
		}
		for _, id := range a.GPUs(string(gpuResource)) {
			if !strings.Contains(got[0].Message, id) {
				t.Errorf("message %q lacks %s", got[0].Message, id)
			}
		}
	})
}
