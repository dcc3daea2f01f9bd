// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/manifests"
)

const (
	fieldManager = "nvtopo-devcluster"
	// systemNamespace is the namespace of the project's accounts and Leases.
	systemNamespace = release.Namespace
	// examplesFolder has the users' examples, in separate namespaces.
	examplesFolder = "examples"
	// applyTimeout limits the wait until the API server acts on applied objects.
	applyTimeout = 3 * time.Minute
)

// installed are the kinds that InstallManifests applies, in that order. The
// workloads are left out: here the programs run outside the cluster.
var installed = []string{
	"Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "PriorityLevelConfiguration", "FlowSchema",
}

// InstallManifests applies the project's CRD, accounts, roles, admission policies and
// priority levels, and returns when the API server acts on all but the last, which it
// does a moment later.
func (c *Cluster) InstallManifests(ctx context.Context) error {
	return c.ApplyManifests(ctx, manifests.FS)
}

// ApplyManifests applies the YAML files of any folder in the same way.
func (c *Cluster) ApplyManifests(ctx context.Context, folder fs.FS) error {
	objects, err := readManifests(folder)
	if err != nil {
		return err
	}
	a, err := newApplier(c)
	if err != nil {
		return err
	}
	if err := a.apply(ctx, namespaceObject(systemNamespace)); err != nil {
		return err
	}
	done, err := oneAtATime(ctx)
	if err != nil {
		return err
	}
	defer done()
	for _, o := range objects {
		if err := a.apply(ctx, o); err != nil {
			return err
		}
	}
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := a.waitServed(ctx, o); err != nil {
			return err
		}
	}
	return a.waitPolicies(ctx)
}

// applying is held by the one cluster of this process whose API server is given policies.
var applying = make(chan struct{}, 1)

// oneAtATime waits until no other cluster of this process is given policies. API servers of one process share
// the map of the variables of all policies (compositionEnvTemplate of k8s.io/apiserver), which each writes while
// it compiles one: two at once end the process with "concurrent map read and map write".
func oneAtATime(ctx context.Context) (done func(), err error) {
	select {
	case applying <- struct{}{}:
		return func() { <-applying }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another cluster's policies: %w", ctx.Err())
	}
}

// readManifests reads the objects of the kinds to install, sorted by kind.
func readManifests(folder fs.FS) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == examplesFolder {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !slices.Contains([]string{".yaml", ".yml"}, path.Ext(name)) {
			return err
		}
		data, err := fs.ReadFile(folder, name)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		objects, err := decodeObjects(data)
		if err != nil {
			return fmt.Errorf("decode %s: %w", name, err)
		}
		out = append(out, objects...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	out = slices.DeleteFunc(out, func(o *unstructured.Unstructured) bool { return !slices.Contains(installed, o.GetKind()) })
	slices.SortStableFunc(out, func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(slices.Index(installed, a.GetKind()), slices.Index(installed, b.GetKind()))
	})
	return out, nil
}

func decodeObjects(data []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data)+1)
	for {
		o := &unstructured.Unstructured{}
		err := dec.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err // the caller names the file
		}
		if len(o.Object) != 0 {
			out = append(out, o)
		}
	}
}

func namespaceObject(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
}

// applier applies objects of any kind.
type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newApplier(c *Cluster) (*applier, error) {
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}, nil
}

func describe(o *unstructured.Unstructured) string {
	return strings.TrimSuffix(o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName(), "/")
}

func (a *applier) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := o.GroupVersionKind()
	m, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, fmt.Errorf("find the resource of %s: %w", describe(o), err)
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return a.client.Resource(m.Resource), nil
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(systemNamespace)
	}
	return a.client.Resource(m.Resource).Namespace(o.GetNamespace()), nil
}

func (a *applier) apply(ctx context.Context, o *unstructured.Unstructured) error {
	r, err := a.resource(o)
	if err != nil {
		return err
	}
	if _, err := r.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return fmt.Errorf("apply %s: %w", describe(o), err)
	}
	return nil
}

// poll calls done until it succeeds, and returns its last error after limit.
func poll(ctx context.Context, limit time.Duration, what string, done func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(ctx context.Context) (bool, error) {
		last = done(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, errors.Join(err, last))
	}
	return nil
}

// waitServed waits until a CRD is established and its newest version can be listed.
func (a *applier) waitServed(ctx context.Context, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	return poll(ctx, applyTimeout, crd.GetName()+" is served", func(ctx context.Context) error {
		a.mapper.Reset()
		gvr, err := a.mapper.ResourceFor(schema.GroupVersionResource{Group: group, Resource: plural})
		if err != nil {
			return fmt.Errorf("discover: %w", err)
		}
		if _, err := a.client.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return fmt.Errorf("list: %w", err)
		}
		return nil
	})
}
