// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

const (
	kueueNamespace = "kueue-system"
	kueueAccount   = "kueue-controller-manager"
	kueueSecret    = "kueue-webhook-server-cert"
)

// kueueKinds are the kinds of Kueue's manifests that are applied, in that order.
// Its Deployment and Services are left out: it runs outside the cluster.
var kueueKinds = []string{
	"Namespace", "CustomResourceDefinition", "ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
}

// kueueRoles begin the names of the roles and bindings of Kueue itself. The others
// are for people, or for parts that are switched off.
var kueueRoles = []string{"kueue-manager-role", "kueue-manager-secrets-", "kueue-leader-election-", "kueue-metrics-"}

// kueueWebhooks are the kinds whose webhooks are kept; those of tenants are called in the namespaces of
// tenants only, because they fail closed.
var kueueWebhooks = map[string]struct{ tenants bool }{
	"job": {tenants: true}, "pod": {tenants: true}, "deployment": {tenants: true}, "jobset": {tenants: true},
	"workload": {}, "clusterqueue": {}, "cohort": {}, "resourceflavor": {},
}

// kueueObjects returns the objects that Kueue needs in a cluster, from the config folder of its module,
// in the order to apply them. Its webhooks are at a loopback port, with these certificates.
func kueueObjects(config string, port int, certificates map[string][]byte) ([]*unstructured.Unstructured, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(config, "default"))
	if err != nil {
		return nil, fmt.Errorf("build Kueue's manifests: %w", err)
	}
	text, err := built.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("write Kueue's manifests: %w", err)
	}
	objects, err := decodeObjects(text)
	if err != nil {
		return nil, fmt.Errorf("decode Kueue's manifests: %w", err)
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return !ofKueue(o) })
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(slices.Index(kueueKinds, a.GetKind()), slices.Index(kueueKinds, b.GetKind()))
	})
	h := hooks{port: port, ca: base64.StdEncoding.EncodeToString(certificates["ca.crt"])}
	for _, o := range objects {
		switch {
		case o.GetKind() == "Secret" && o.GetName() == kueueSecret:
			o.Object["data"] = encoded(certificates)
		case o.GetKind() == "CustomResourceDefinition":
			err = h.convert(o)
		case strings.HasSuffix(o.GetKind(), "WebhookConfiguration"):
			err = h.admit(o)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", describe(o), err)
		}
	}
	return objects, nil
}

// ofKueue reports whether the process needs the object.
func ofKueue(o *unstructured.Unstructured) bool {
	if strings.Contains(o.GetKind(), "Role") {
		return slices.Contains(kueueKinds, o.GetKind()) &&
			slices.ContainsFunc(kueueRoles, func(prefix string) bool { return strings.HasPrefix(o.GetName(), prefix) })
	}
	return slices.Contains(kueueKinds, o.GetKind())
}

// encoded is the data of a Secret.
func encoded(files map[string][]byte) map[string]any {
	out := map[string]any{}
	for name, data := range files {
		out[name] = base64.StdEncoding.EncodeToString(data)
	}
	return out
}

// hooks locates the webhooks.
type hooks struct {
	port int
	ca   string
}

// client returns the clientConfig that leads where another leads by a Service,
// which nothing here routes.
func (h hooks) client(old map[string]any) (map[string]any, error) {
	path, found, err := unstructured.NestedString(old, "service", "path")
	if err != nil || !found {
		return nil, fmt.Errorf("a webhook without a service's path: %v", old)
	}
	return map[string]any{"url": fmt.Sprintf("https://127.0.0.1:%d%s", h.port, path), "caBundle": h.ca}, nil
}

// convert has a CRD's versions converted at the port.
func (h hooks) convert(crd *unstructured.Unstructured) error {
	field := []string{"spec", "conversion", "webhook", "clientConfig"}
	old, found, err := unstructured.NestedMap(crd.Object, field...)
	if err != nil || !found {
		return err // the caller names the object
	}
	client, err := h.client(old)
	if err != nil {
		return err
	}
	return unstructured.SetNestedMap(crd.Object, client, field...)
}

// admit directs a configuration's kept webhooks to the port.
func (h hooks) admit(configuration *unstructured.Unstructured) error {
	all, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return err // the caller names the object
	}
	var kept []any
	for _, entry := range all {
		hook, ok := entry.(map[string]any)
		if !ok {
			return fmt.Errorf("a webhook is no object: %v", entry)
		}
		// Names are m or v, for mutating or validating, then the kind: mjob.kb.io.
		name, _ := hook["name"].(string)
		about, keep := kueueWebhooks[strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(name, "m"), "v"), ".kb.io")]
		if !keep {
			continue
		}
		old, _ := hook["clientConfig"].(map[string]any)
		if hook["clientConfig"], err = h.client(old); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if about.tenants {
			hook["namespaceSelector"] = map[string]any{
				"matchExpressions": []any{map[string]any{"key": poolv1alpha1.LabelTenant, "operator": "Exists"}},
			}
		}
		kept = append(kept, hook)
	}
	return unstructured.SetNestedSlice(configuration.Object, kept, "webhooks")
}
