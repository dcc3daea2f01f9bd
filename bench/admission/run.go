// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/manifests"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

const (
	// labelWithout marks the namespaces that the bindings exclude.
	labelWithout = "bench.nvtopo.dev/without-bindings"
	tenant       = "team"
	account      = "user"
	// bound bounds the wait until the API server applies the bindings.
	bound = 2 * time.Minute
)

// cell is the requests of one kind and size, in a tenant's namespace or another.
type cell struct {
	Kind   string `json:"kind"`
	Size   int    `json:"size"` // number of entries; 0 where the kind does not depend on it
	Bytes  int    `json:"bytes"`
	Tenant bool   `json:"tenant"`
	// With and Without are milliseconds until the answer, with the bindings and without.
	With    report.Sample `json:"with"`
	Without report.Sample `json:"without"`
	// Refused is the refusal with the bindings, empty where the request is admitted.
	Refused string `json:"refused,omitempty"`
}

func (c *cell) ratio() float64 { return c.With.Median() / c.Without.Median() }

// namespace returns one of the four namespaces: a tenant's or not, with the bindings or without.
func namespace(ofTenant, bindings bool) string {
	name := "plain"
	if ofTenant {
		name = "tenant"
	}
	if !bindings {
		name += "-without"
	}
	return name
}

func run(ctx context.Context, o *options, log io.Writer) (cells []cell, err error) {
	c, err := devcluster.Start(ctx, devcluster.Config{})
	if err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	defer func() { err = errors.Join(err, c.Stop()) }() //nolint:contextcheck // it has to end although ctx may be over
	client, err := prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	for i := range kinds {
		k := &kinds[i]
		sizes := o.Sizes
		if k.keepsSize {
			sizes = []int{0}
		}
		for _, ofTenant := range []bool{false, true} {
			for _, n := range sizes {
				fmt.Fprintf(log, "%s: %d, %s\n", k.name, n, namespace(ofTenant, true))
				done, err := measure(ctx, client.CoreV1().RESTClient(), k, n, ofTenant, o.Rounds)
				if err != nil {
					return nil, fmt.Errorf("%s: %d: %w", k.name, n, err)
				}
				cells = append(cells, done)
			}
		}
	}
	return cells, nil
}

// measure sends a request in turn to both namespaces. The first of each, which fills caches, is not
// measured.
func measure(ctx context.Context, client rest.Interface, k *kind, n int, ofTenant bool, rounds int) (cell, error) {
	c := cell{Kind: k.name, Size: n, Tenant: ofTenant}
	body, err := k.body(n, ofTenant)
	if err != nil {
		return c, err
	}
	c.Bytes = len(body)
	for round := range rounds + 1 {
		for _, bindings := range []bool{round%2 == 0, round%2 != 0} {
			begin := time.Now()
			err := client.Post().AbsPath(fmt.Sprintf(k.path, namespace(ofTenant, bindings))).Param("dryRun", "All").
				SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
			took := float64(time.Since(begin)) / float64(time.Millisecond)
			refused := apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
			switch {
			case err != nil && (!refused || !bindings):
				return c, fmt.Errorf("bindings %t: %w", bindings, err)
			case err != nil:
				_, c.Refused, _ = strings.Cut(err.Error(), "denied request: ")
			}
			switch {
			case round == 0:
			case bindings:
				c.With = append(c.With, took)
			default:
				c.Without = append(c.Without, took)
			}
		}
	}
	return c, nil
}

// prepare installs everything, and makes the bindings exclude the marked namespaces. It returns a client
// of the tenant's account.
func prepare(ctx context.Context, c *devcluster.Cluster) (kubernetes.Interface, error) {
	if err := errors.Join(c.InstallManifests(ctx), c.ApplyManifests(ctx, manifests.Pools)); err != nil {
		return nil, fmt.Errorf("install the manifests: %w", err)
	}
	kube, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if _, err := kube.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make the tenant's account: %w", err)
	}
	for _, ofTenant := range []bool{false, true} {
		for _, bindings := range []bool{false, true} {
			if err := makeNamespace(ctx, kube, ofTenant, bindings); err != nil {
				return nil, err
			}
		}
	}
	computePool := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": poolv1alpha1.SchemeGroupVersion.String(), "kind": poolv1alpha1.ComputePoolKind, "metadata": map[string]any{"name": pool},
		"spec": map[string]any{"poolType": "gpu", "capacity": map[string]any{"total": int64(8)}, "quotas": []any{map[string]any{"tenant": tenant, "guaranteed": int64(8)}}},
	}}
	if _, err := dyn.Resource(poolv1alpha1.ComputePoolGVR).Create(ctx, computePool, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make the pool: %w", err)
	}
	cfg, err := c.ServiceAccountConfig(ctx, metav1.NamespaceDefault, account)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, leaveOut(ctx, kube, client)
}

func makeNamespace(ctx context.Context, kube kubernetes.Interface, ofTenant, bindings bool) error {
	name := namespace(ofTenant, bindings)
	labels := map[string]string{}
	if ofTenant {
		labels[poolv1alpha1.LabelTenant] = tenant
	}
	if !bindings {
		labels[labelWithout] = "true"
	}
	if _, err := kube.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		// The parts of Kubernetes' role edit; no controller runs here that would aggregate them.
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-edit"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: account}},
	}
	if _, err := kube.RbacV1().RoleBindings(name).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("let the tenant into namespace %s: %w", name, err)
	}
	return nil
}

// leaveOut makes all bindings exclude the marked namespaces, and waits until the API server applies
// that. It updates its set of bindings at one moment, so that once the last one is in it, all are. The
// probe is sent by tenant: an administrator may do what the last binding refuses.
func leaveOut(ctx context.Context, kube, tenant kubernetes.Interface) error {
	const last = "nvtopo-allocations"
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"matchResources": map[string]any{"namespaceSelector": map[string]any{
		"matchExpressions": []any{map[string]any{"key": labelWithout, "operator": "DoesNotExist"}},
	}}}})
	if err != nil {
		return fmt.Errorf("encode the change of the bindings: %w", err)
	}
	bindings := kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	all, err := bindings.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the bindings: %w", err)
	}
	for _, final := range []bool{false, true} {
		for i := range all.Items {
			name := all.Items[i].Name
			if (name == last) != final {
				continue
			}
			if _, err := bindings.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("change binding %s: %w", name, err)
			}
		}
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Annotations: map[string]string{"nvtopo.dev/allocation": "{}"}}, // the last binding refuses it
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
	var refusal error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, bound, true, func(ctx context.Context) (bool, error) {
		_, refusal = tenant.CoreV1().Pods(namespace(false, false)).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return refusal == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the bindings leave namespaces out: %w", errors.Join(err, refusal))
	}
	return nil
}
