// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// TestKustomizeRoleNames: kustomize keeps the names in roles. Kustomize takes a name in a rule for
// that of a ConfigMap it has generated, if they are alike, and appends the hash. The scheduler then
// may not renew its Lease.
func TestKustomizeRoleNames(t *testing.T) {
	want := []string{"nvtopo-scheduler", "nvtopo-controller"}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), ".")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range built.Resources() {
		if r.GetKind() != "Role" || r.GetName() != "nvtopo-scheduler" {
			continue
		}
		var role rbacv1.Role
		if err := yaml.UnmarshalStrict([]byte(r.MustYaml()), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, "leases") {
				got = append(got, rule.ResourceNames...)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Leases that the scheduler may renew (-want +got):\n%s", diff)
	}
}

// TestKustomizeBuild assembles what docs/install.md tells an operator to apply, without
// reaching outside of the folder.
func TestKustomizeBuild(t *testing.T) {
	tests := map[string]struct {
		path       string
		wantKinds  map[string]int
		wantConfig string
	}{
		"the base": {".", map[string]int{
			"Namespace": 1, "CustomResourceDefinition": 2, "ServiceAccount": 4, "ClusterRole": 6, "ClusterRoleBinding": 6, "Role": 4, "RoleBinding": 4,
			"ValidatingAdmissionPolicy": 8, "ValidatingAdmissionPolicyBinding": 8, "PriorityLevelConfiguration": 2, "FlowSchema": 4, "NetworkPolicy": 1, "ConfigMap": 2, "Deployment": 1, "DaemonSet": 2,
		}, manifests.SchedulerConfigPath},
		"annotations on the Binding": {"overlays/binding", map[string]int{"ConfigMap": 2, "Deployment": 1, "ValidatingAdmissionPolicy": 8}, manifests.SchedulerConfigBindingPath},
		"in place of kube-scheduler": {"overlays/default-scheduler", map[string]int{"ConfigMap": 2, "Deployment": 1}, manifests.SchedulerConfigDefaultPath},
		"the scheduler alone": {"overlays/scheduler", map[string]int{
			"CustomResourceDefinition": 2, "ServiceAccount": 2, "ClusterRole": 4, "ClusterRoleBinding": 4, "Role": 2, "RoleBinding": 2,
			"ValidatingAdmissionPolicy": 8, "FlowSchema": 4, "Deployment": 1, "DaemonSet": 0,
		}, manifests.SchedulerConfigPath},
		"scheduler and exporter": {"overlays/exporter", map[string]int{"ServiceAccount": 3, "Role": 3, "Deployment": 1, "DaemonSet": 1}, manifests.SchedulerConfigPath},
		"agents that are strict": {"overlays/strict", map[string]int{"Deployment": 1, "DaemonSet": 2}, manifests.SchedulerConfigPath},
		"agents that pin":        {"overlays/pinning", map[string]int{"Deployment": 1, "DaemonSet": 2}, manifests.SchedulerConfigPath},
		"the examples":           {"examples", map[string]int{"Pod": 4, "Job": 5}, ""},
		"pools": {"pools", map[string]int{
			"CustomResourceDefinition": 8, "ServiceAccount": 1, "ClusterRole": 5, "ClusterRoleBinding": 3, "Role": 1, "RoleBinding": 1,
			"ValidatingAdmissionPolicy": 23, "ValidatingAdmissionPolicyBinding": 23, "NetworkPolicy": 1, "Deployment": 1,
		}, ""},
		"the base with pools": {"overlays/pools", map[string]int{
			"CustomResourceDefinition": 10, "ServiceAccount": 5, "ValidatingAdmissionPolicy": 31, "Deployment": 2, "DaemonSet": 2,
		}, ""},
		"the web view": {"ui", map[string]int{
			"ServiceAccount": 1, "ClusterRole": 2, "ClusterRoleBinding": 1, "Role": 1, "RoleBinding": 1, "Deployment": 1, "Service": 1, "NetworkPolicy": 1,
		}, ""},
		"the alerts":            {"alerts", map[string]int{"PrometheusRule": 1, "Service": 3, "ServiceMonitor": 1}, ""},
		"the alerts of pools":   {"pools/alerts", map[string]int{"PrometheusRule": 1, "Service": 1, "ServiceMonitor": 1}, ""},
		"the examples of pools": {"examples/pools", map[string]int{"ComputePool": 3, "ElasticJob": 3, "PriceBook": 1, "TenantAccount": 1, "RemoteGPUSession": 1, "HorizontalPodAutoscaler": 1, "CronJob": 2, "Role": 1}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), tc.path)
			if err != nil {
				t.Fatal(err)
			}
			kinds := map[string]int{}
			var deployment, configMap string
			for _, r := range built.Resources() {
				kinds[r.GetKind()]++
				switch r.GetKind() {
				case "Deployment":
					deployment = r.MustYaml()
				case "ConfigMap":
					if r.GetName() != diagnosis.ProfilesName { // which the scheduler writes
						configMap = r.GetName()
					}
				case "RoleBinding":
					if want := "kube-system"; strings.HasSuffix(r.GetName(), ":auth-reader") && r.GetNamespace() != want {
						t.Errorf("RoleBinding %s is in %s, want %s", r.GetName(), r.GetNamespace(), want)
					}
				}
			}
			for kind, want := range tc.wantKinds {
				if kinds[kind] != want {
					t.Errorf("%d of kind %s, want %d", kinds[kind], kind, want)
				}
			}
			if tc.wantConfig == "" {
				return
			}
			file := tc.wantConfig[strings.LastIndex(tc.wantConfig, "/")+1:]
			for _, want := range []string{"--config=/etc/nvtopo/" + file + "\n", "name: " + configMap + "\n"} {
				if !slices.ContainsFunc(strings.SplitAfter(deployment, "\n"), func(line string) bool { return strings.HasSuffix(line, want) }) {
					t.Errorf("the Deployment has no line that ends with %q:\n%s", want, deployment)
				}
			}
		})
	}
}
