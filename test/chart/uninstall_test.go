// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/cli"
)

// TestNothingHoldsUninstall checks that no rendered object, with any values, holds up `helm uninstall`:
// none is an uninstall hook, none has a finalizer or an owner, and none has a server called that goes
// with the release. Only the definitions are kept.
func TestNothingHoldsUninstall(t *testing.T) {
	for name, tc := range same {
		t.Run(name, func(t *testing.T) {
			for k, o := range render(t, tc.values) {
				if hook := o.GetAnnotations()["helm.sh/hook"]; hook != "" && hook != "test" {
					t.Errorf("%s is a hook: %s", k, hook)
				}
				if len(o.GetFinalizers())+len(o.GetOwnerReferences()) > 0 {
					t.Errorf("%s has the finalizers %v and the owners %v", k, o.GetFinalizers(), o.GetOwnerReferences())
				}
				if slices.Contains([]string{"APIService", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}, o.GetKind()) {
					t.Errorf("%s: requests fail once its server is gone", k)
				}
				want := ""
				if o.GetKind() == "CustomResourceDefinition" {
					want = "keep"
				}
				if got := o.GetAnnotations()["helm.sh/resource-policy"]; got != want {
					t.Errorf("%s has the resource policy %q, want %q", k, got, want)
				}
			}
		})
	}
}

// servedLimit bounds the wait for an API server to serve the kinds of existing definitions.
const servedLimit = 2 * time.Minute

// inUse are objects that users and programs create while nvtopo is installed, with a foreign object in
// its namespace.
const inUse = `apiVersion: pool.nvtopo.dev/v1alpha1
kind: ComputePool
metadata: {name: training, finalizers: [pool.nvtopo.dev/pool]}
spec: {poolType: gpu, capacity: {total: 8}, quotas: [{tenant: team-a, limit: 8}]}
---
apiVersion: v1
kind: Pod
metadata: {name: runs, namespace: default, finalizers: [pool.nvtopo.dev/metering, example.com/theirs]}
spec: {nodeName: node-1, containers: [{name: main, image: example.com/train}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs, namespace: nvtopo-system}`

// use creates the objects of inUse.
func (s *server) use(t *testing.T) objects {
	t.Helper()
	made := decode(t, []byte(inUse))
	testkit.Eventually(t, servedLimit, "the kinds of the chart are served", func(context.Context) (bool, string) {
		s.mapper.Reset()
		pool := made["ComputePool /training"].GroupVersionKind()
		_, err := s.mapper.RESTMapping(pool.GroupKind(), pool.Version)
		return err == nil, fmt.Sprint(err)
	})
	for k, o := range made {
		if err := s.apply(t, o); err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		made[k] = s.read(t, o)
	}
	return made
}

// read returns an object from the server; nil if there is none.
func (s *server) read(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	got, err := s.resource(t, o).Get(t.Context(), o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatalf("%s: %v", key(o), err)
	}
	return got
}

// afterUninstall checks that the objects in use are unchanged after `helm uninstall`, and that `nvtopo
// uninstall` then removes the remains: the pool, and its finalizer on the pod, which runs on.
func (s *server) afterUninstall(t *testing.T, made objects) {
	t.Helper()
	for k, o := range made {
		if diff := cmp.Diff(o, s.read(t, o)); diff != "" {
			t.Errorf("after helm uninstall %s (-before +after):\n%s", k, diff)
		}
	}
	var out bytes.Buffer
	cmd := cli.New("nvtopo")
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs([]string{"uninstall", "--kubeconfig", s.Kubeconfig()})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("nvtopo uninstall: %v\n%s", err, out.String())
	}
	if pool := s.read(t, made["ComputePool /training"]); pool != nil {
		t.Errorf("the pool is there after nvtopo uninstall: %v", pool)
	}
	was := made["Pod default/runs"]
	pod := s.read(t, was)
	if pod == nil || pod.GetUID() != was.GetUID() || pod.GetDeletionTimestamp() != nil {
		t.Fatalf("the pod after nvtopo uninstall is %v", pod)
	}
	if diff := cmp.Diff([]string{"example.com/theirs"}, pod.GetFinalizers()); diff != "" {
		t.Errorf("finalizers of the pod (-want +got):\n%s", diff)
	}
	if !strings.Contains(out.String(), "kept Namespace nvtopo-system: it has ConfigMap nvtopo-system/theirs") {
		t.Errorf("nvtopo uninstall does not say why the namespace stays:\n%s", out.String())
	}
	if err := s.resource(t, made["ConfigMap nvtopo-system/theirs"]).Delete(t.Context(), "theirs", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
