// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// TestKueueInstallation checks that Kueue is installed with our configuration. It assembles
// manifests/kueue with Kueue's own manifests, as they are in its module; the release has the same in one
// file.
func TestKueueInstallation(t *testing.T) {
	_, config := testkit.Kueue(t)
	config, err := filepath.EvalSymlinks(config)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	relative := func(path string) string {
		r, err := filepath.Rel(dir, path)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	text := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\n",
		relative(filepath.Join(config, "default")), relative(filepath.Join(testkit.Repository(), "manifests", "kueue", "component")))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	want, err := manifests.Kueue.ReadFile(manifests.KueueConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	ofTenants := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: poolv1alpha1.LabelTenant, Operator: metav1.LabelSelectorOpExists},
	}}
	configured, hooks := 0, 0
	for _, r := range built.Resources() {
		switch {
		case r.GetKind() == "APIService":
			t.Errorf("%s is not served with this configuration", r.GetName())
		case r.GetKind() == "ConfigMap" && r.GetName() == "kueue-manager-config":
			var got v1.ConfigMap
			if err := yaml.Unmarshal([]byte(r.MustYaml()), &got); err != nil {
				t.Fatal(err)
			}
			configured++
			if diff := cmp.Diff(map[string]string{"controller_manager_config.yaml": string(want)}, got.Data); diff != "" {
				t.Errorf("Kueue's configuration (-ours +installed):\n%s", diff)
			}
		case strings.HasSuffix(r.GetKind(), "WebhookConfiguration"):
			var got admissionregistrationv1.ValidatingWebhookConfiguration // the fields of both kinds are alike
			if err := yaml.Unmarshal([]byte(r.MustYaml()), &got); err != nil {
				t.Fatal(err)
			}
			for _, hook := range got.Webhooks {
				if !slices.Contains([]string{"job.kb.io", "pod.kb.io", "deployment.kb.io", "jobset.kb.io", "statefulset.kb.io"}, hook.Name[1:]) {
					continue
				}
				hooks++
				if diff := cmp.Diff(ofTenants, hook.NamespaceSelector); diff != "" {
					t.Errorf("%s is asked about (-want +got):\n%s", hook.Name, diff)
				}
			}
		}
	}
	if configured != 1 || hooks != 10 {
		t.Errorf("%d configurations and %d webhooks of jobs, pods and their owners, want 1 and 10", configured, hooks)
	}
}
