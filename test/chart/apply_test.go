// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// server is a real API server with an administrator's access.
type server struct {
	*devcluster.Cluster
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func start(t *testing.T) *server {
	t.Helper()
	c, err := devcluster.Start(t.Context(), devcluster.Config{Log: testkit.Log()})
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	d, err := discovery.NewDiscoveryClientForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(rest.CopyConfig(c.RESTConfig()))
	if err != nil {
		t.Fatal(err)
	}
	return &server{c, client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}
}

func (s *server) resource(t *testing.T, o *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	gvk := o.GroupVersionKind()
	m, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		t.Fatalf("%s: %v", key(o), err)
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return s.client.Resource(m.Resource)
	}
	return s.client.Resource(m.Resource).Namespace(o.GetNamespace())
}

// apply makes the server validate an object strictly, and store it unless dry.
func (s *server) apply(t *testing.T, o *unstructured.Unstructured, dry ...string) error {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	force := true
	_, err = s.resource(t, o).Patch(t.Context(), o.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{
		FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dry,
	})
	return err
}

// validate makes the server validate the objects of an installation.
func (s *server) validate(t *testing.T, all objects) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if err := s.apply(t, all[k], metav1.DryRunAll); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
}

// TestServerValidation has a real API server strictly validate the kustomize build of every overlay and
// Helm's rendering of each set of values; Helm also installs, upgrades, rolls back and uninstalls the
// chart there.
func TestServerValidation(t *testing.T) {
	s := start(t)
	if err := s.apply(t, kustomize(t, "core")["Namespace /"+namespace]); err != nil {
		t.Fatal(err)
	}
	s.installOperatorKinds(t)
	alerts := kustomize(t, "alerts")
	for path, wrong := range map[string]*unstructured.Unstructured{
		"spec":                  render(t, "")[agent],
		"spec/endpoints/0":      alerts["ServiceMonitor nvtopo-system/nvtopo"],
		"spec/groups/0/rules/0": alerts["PrometheusRule nvtopo-system/nvtopo-placement"],
	} {
		field(t, wrong, path).(map[string]any)["sauce"] = true
		if err := s.apply(t, wrong, metav1.DryRunAll); err == nil || !strings.Contains(err.Error(), "sauce") {
			t.Fatalf("a field of %s that nobody knows: %v", key(wrong), err)
		}
	}

	overlays, err := filepath.Glob(filepath.Join(testkit.Repository(), "manifests", "overlays", "*"))
	if err != nil || len(overlays) < 7 {
		t.Fatalf("%d overlays: %v", len(overlays), err)
	}
	for _, o := range append(overlays, ".", "core", "pools", "alerts", "pools/alerts") {
		name := o
		if filepath.IsAbs(o) {
			name = filepath.Join("overlays", filepath.Base(o))
		}
		t.Run(name, func(t *testing.T) { s.validate(t, kustomize(t, name)) })
	}
	for name, tc := range same {
		t.Run(name, func(t *testing.T) { s.validate(t, render(t, tc.values)) })
	}
	t.Run("helm", func(t *testing.T) { s.helm(t) })
}

// helm installs, upgrades, rolls back and uninstalls the chart with Helm, without nodes that run the
// pods.
func (s *server) helm(t *testing.T) {
	t.Helper()
	t.Setenv("KUBECONFIG", s.Kubeconfig())
	run := func(args ...string) {
		t.Helper()
		if _, complaints, err := helm(t, args...); err != nil {
			t.Fatalf("helm %s: %v\n%s", args[0], err, complaints)
		}
	}
	mode := func() any {
		t.Helper()
		o := render(t, "")[agent]
		got, err := s.resource(t, o).Get(t.Context(), o.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return field(t, got, container+"args/0")
	}
	const pools = "{pools: {enabled: true}, monitoring: {enabled: true}}"
	run("install", "nvtopo", folder(), "--values", values(t, pools))
	for k, o := range render(t, pools) {
		if o.GetAnnotations()["helm.sh/hook"] != "" {
			continue
		}
		if _, err := s.resource(t, o).Get(t.Context(), o.GetName(), metav1.GetOptions{}); err != nil {
			t.Errorf("%s is not installed: %v", k, err)
		}
	}
	run("upgrade", "nvtopo", folder(), "--values", values(t, "{pools: {enabled: true}, nodeAgent: {mode: strict}}"))
	if got := mode(); got != "--mode=strict" {
		t.Errorf("after the upgrade agents run with %v", got)
	}
	run("rollback", "nvtopo", "1")
	if got := mode(); got != "--mode=repair" {
		t.Errorf("after the roll-back agents run with %v", got)
	}
	made := s.use(t)
	run("uninstall", "nvtopo", "--wait") // would wait for objects with finalizers
	for k, o := range render(t, pools) {
		_, err := s.resource(t, o).Get(t.Context(), o.GetName(), metav1.GetOptions{})
		if kept := o.GetKind() == "CustomResourceDefinition"; kept != (err == nil) {
			t.Errorf("%s after the release was uninstalled: %v", k, err)
		}
	}
	s.afterUninstall(t, made)

	// An installation by kubectl becomes Helm's.
	for k, o := range kustomize(t, "overlays/pools") {
		if err := s.apply(t, o); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
	run("install", "nvtopo", folder(), "--take-ownership", "--values", values(t, pools))
}
