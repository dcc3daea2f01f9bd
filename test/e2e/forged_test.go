// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// user returns a client of an account that may do everything with pods and deployments, but may not write
// allocations.
func (e *testEnv) user(t *testing.T) kubernetes.Interface {
	t.Helper()
	const name = "user"
	ctx := t.Context()
	meta := metav1.ObjectMeta{Name: name}
	if _, err := e.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, &v1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "pods/status", "pods/binding", "bindings"}, Verbs: []string{"*"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"*"}},
	}}
	if _, err := e.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceDefault}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg, err := e.Cluster.ServiceAccountConfig(ctx, metav1.NamespaceDefault, name)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestForgedAnnotation checks that an allocation written by a user gets no GPU: the API server refuses
// it, and one that exists nevertheless is ignored.
func TestForgedAnnotation(t *testing.T) {
	l := startBeside(t, gpunode.Config{Agent: true})
	user := l.user(t)
	pods := user.CoreV1().Pods(metav1.NamespaceDefault)
	victim := l.create(t, gpunode.Pod("victim", 2, scheduledBy(nobody)))
	forged := l.allocation(t, victim, 0, 7)

	cases := map[string]struct {
		write func(ctx context.Context) error
		want  []string // parts of the refusal
	}{
		"on a pod that is created": {
			write: func(ctx context.Context) error {
				pod := gpunode.Pod("forged", 2)
				pod.Annotations = forged
				_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
				return err
			},
			want: []string{allocation.Key, "only the scheduler that chooses the GPUs writes this; drop it"},
		},
		"on a pod that exists": {
			write: func(ctx context.Context) error {
				pod := victim.DeepCopy()
				pod.Annotations = forged
				_, err := pods.Update(ctx, pod, metav1.UpdateOptions{})
				return err
			},
			want: []string{allocation.Key, "only the scheduler that chooses the GPUs writes this; drop it"},
		},
		"with an update of a pod's status": {
			write: func(ctx context.Context) error {
				pod := victim.DeepCopy()
				pod.Annotations = forged
				_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
				return err
			},
			want: []string{allocation.Key, "only the scheduler that chooses the GPUs writes this; drop it"},
		},
		"on a Binding": {
			write: func(ctx context.Context) error {
				return pods.Bind(ctx, &v1.Binding{
					ObjectMeta: metav1.ObjectMeta{Name: victim.Name, Namespace: victim.Namespace, Annotations: forged},
					Target:     v1.ObjectReference{Kind: "Node", Name: l.Node.Name()},
				}, metav1.CreateOptions{})
			},
			want: []string{allocation.Key, "only the scheduler that chooses the GPUs writes this; drop it"},
		},
		"in a template": {
			write: func(ctx context.Context) error {
				labels := map[string]string{"app": "forged"}
				_, err := user.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, &appsv1.Deployment{
					ObjectMeta: metav1.ObjectMeta{Name: "forged"},
					Spec: appsv1.DeploymentSpec{
						Selector: &metav1.LabelSelector{MatchLabels: labels},
						Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: forged}, Spec: deployable()},
					},
				}, metav1.CreateOptions{})
				return err
			},
			want: []string{"spec.template.metadata.annotations: drop " + allocation.Key, "the scheduler chooses GPUs for each pod by itself"},
		},
	}
	for name, tc := range cases {
		t.Run("refused "+name, func(t *testing.T) {
			err := tc.write(t.Context())
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want a refusal with %q", err, want)
				}
			}
		})
	}

	t.Run("stale ones are ignored", func(t *testing.T) {
		// Two GPUs with a slow path between them, and two that belong to another pod.
		holder := l.create(t, gpunode.Pod("holder", 2))
		reserved := held(l.observe(t, l.running(t, holder.Name)))
		stale := l.create(t, gpunode.Pod("stale", 2, scheduledBy(nobody)))
		wish := l.uuids(0, 7)
		if both := common(wish, reserved); len(both) > 0 {
			wish = l.uuids(1, 6)
		}
		// As an administrator: forged is the victim's allocation, so that the UID is another pod's.
		l.bind(t, stale, forged)
		got := l.observe(t, l.running(t, stale.Name))
		if has := held(got); len(has) != 2 || slices.Equal(has, wish) || len(common(has, reserved)) > 0 {
			t.Errorf("it got %v; it wished for %v, and %v are another's", has, wish, reserved)
		}
		l.published(t, stale, v1alpha1.StateForeign)
	})
}

// deployable returns a pod's spec that a Deployment accepts.
func deployable() v1.PodSpec {
	spec := gpunode.Pod("", 2).Spec
	spec.RestartPolicy = v1.RestartPolicyAlways
	return spec
}
